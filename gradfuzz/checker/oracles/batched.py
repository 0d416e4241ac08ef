"""Batched gradients: vmap over grad_outputs gives what a loop over them gives, and so does vmap over directions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch

from gradfuzz.checker.answers import Answers
from gradfuzz.checker.evaluation import BackwardRaised, First, Second, backward, double_backward, materialize
from gradfuzz.checker.oracles.metamorphic import compare
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Tensors
from gradfuzz.checker.verdict import Finding, Symptom

BATCH_SIZE = 2
# The second entry is the first times this: a right backward is linear, so that its answer is known without a loop, and
# one that is not is found out when the entry is looked at alone.
OTHER = -2.0


def batched_is_the_loop(run: Run) -> Iterator[Finding]:
    """Map one backward over a batch of grad_outputs; a missing batching rule is no finding.

    The forward stays outside vmap: `is_grads_batched` would never ask a Function for its own vmap rule.
    """
    if run.base.grads is None:
        return
    leaves, outputs = run.base.leaves, run.base.graph
    used = [i for i, flag in enumerate(run.base.with_graph) if flag]
    if not used:
        return

    def alone(v: Tensors) -> Answers:
        return Answers.of(First(outputs, backward(outputs, leaves, v, retain_graph=True), leaves))

    def vjp(*v: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return torch.autograd.grad([outputs[i] for i in used], leaves, v, retain_graph=True, allow_unused=True)

    other = tuple(g * OTHER for g in run.v)
    rows = _mapped(vjp, tuple(torch.stack([run.v[i], other[i]]) for i in used), leaves)
    first = replace(run.given, values=None, hessian_u=None, jacobian_u=None)
    loop = [first, replace(first, gradients=OTHER * first.gradients)]
    yield from _compared(
        run,
        loop,
        [Answers.of(First(outputs, row, leaves)) for row in rows],
        [lambda: alone(run.v), lambda: alone(other)],
        "grad_outputs",
    )


def batched_second_is_the_loop(run: Run) -> Iterator[Finding]:
    """Map the double backward over a batch of directions; a missing batching rule is no finding."""
    if run.second is None or run.base.grads is None:
        return
    leaves, outputs = run.base.leaves, run.base.graph
    other = tuple(d * OTHER for d in run.second_along)

    def alone(u: Tensors) -> Answers:
        return Answers.of(double_backward(leaves, outputs, run.v, u, retain_graph=True))

    v = tuple(t.detach().clone().requires_grad_() for t in run.v)
    try:
        grads = backward(outputs, leaves, v, create_graph=True)
    except BackwardRaised:
        return  # it has been reported
    used = [i for i, g in enumerate(grads) if g is not None and g.requires_grad]
    if not used:
        return

    def twice(*u: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        roots = [g for i, g in enumerate(grads) if i in used and g is not None]
        return torch.autograd.grad(roots, (*leaves, *v), u, retain_graph=True, allow_unused=True)

    first = replace(run.given, values=None)
    if first.hessian_u is None or first.jacobian_u is None:
        return
    loop = [first, replace(first, hessian_u=OTHER * first.hessian_u, jacobian_u=OTHER * first.jacobian_u)]
    stacked = tuple(torch.stack([run.second_along[i], other[i]]) for i in used)
    rows = _mapped(twice, stacked, (*leaves, *v))
    count = len(leaves)
    yield from _compared(
        run,
        loop,
        [Answers.of(Second(outputs, grads, leaves, row[:count], row[count:])) for row in rows],
        [lambda: alone(run.second_along), lambda: alone(other)],
        "directions",
    )


def _mapped(
    function: Callable[..., tuple[torch.Tensor | None, ...]], batch: Tensors, like: Tensors
) -> list[tuple[torch.Tensor, ...]]:
    """Run `function` under vmap and give its results by entry, zeros in the place of None; none where it cannot be."""
    missing: list[bool] = []

    def present(*entry: torch.Tensor) -> Tensors:
        results = function(*entry)
        missing[:] = [r is None for r in results]
        return tuple(r for r in results if r is not None)

    try:
        mapped = iter(torch.vmap(present)(*batch))
    except Exception:  # any exception says the same: this backward cannot be batched, which nobody promised
        return []
    full = [None if flag else next(mapped).detach() for flag in missing]
    return [materialize([None if f is None else f[i] for f in full], like) for i in range(BATCH_SIZE)]


def _compared(
    run: Run, loop: list[Answers], rows: list[Answers], again: list[Callable[[], Answers]], over: str
) -> Iterator[Finding]:
    for i, (want, row, repeat) in enumerate(zip(loop, rows, again, strict=False)):  # no rows: nothing to compare
        explanation = f"in entry {i} of a batch of {BATCH_SIZE} {over}; alone it gives another {{what}}"
        found = list(compare(run, Symptom.BATCHED, want, lambda row=row: row, again=repeat, explanation=explanation))  # type: ignore[misc]
        yield from found
        if found:
            return
