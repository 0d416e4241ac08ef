"""Memory layout: strides, offset, expansion and the conj and neg bits change nothing but speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Tensors, backward, flat, materialize
from gradfuzz.checker.naming import apart, element_of
from gradfuzz.checker.oracles.metamorphic import compare_gradients, value_differs
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The same elements with the strides of the reversed dimensions."""
    if x.dim() < 2:
        return stepped(x)
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def stepped(x: torch.Tensor) -> torch.Tensor:
    """The same elements, every second one of a larger storage with another offset; the gaps hold other numbers."""
    if x.dim() == 0:
        return torch.stack([x + 1, x])[1]
    wide = torch.stack([x + 1, x], dim=-1).reshape(*x.shape[:-1], 2 * x.shape[-1])
    return wide[..., 1::2]


CHANGES = (("transposed", transposed), ("every second element of a larger tensor", stepped))


def layout_is_irrelevant(run: Run) -> Iterator[Finding]:
    """Same values, same result: inputs as given against contiguous ones, inputs and grad_outputs laid out otherwise."""
    if run.base.grads is None:
        return
    want = run.base.gradients
    if not run.subject.ordinary and not run.subject.random:
        found = list(
            compare_gradients(
                run,
                Symptom.LAYOUT_DEPENDENT,
                run.gradients_at(run.subject.point),
                lambda: want,
                explanation="with the inputs' own strides; contiguous copies of them give another gradient",
            )
        )
        yield from found
        if found:
            return
    contiguous = run.gradients_at(run.subject.point, tuple(g.contiguous() for g in run.v))
    # A random function fills other elements when it walks memory in another order: no two layouts compare.
    changes = () if run.subject.random else CHANGES
    for name, change in changes:
        if (value := _value_differs(run, change, name)) is not None:
            yield value
            return
        found = list(
            compare_gradients(
                run,
                Symptom.LAYOUT_DEPENDENT,
                contiguous,
                lambda change=change: _relaid_input(run, change),  # type: ignore[misc]
                explanation=f"with inputs that are {name}; contiguous ones give another gradient",
            )
        )
        yield from found
        if found:
            return
    yield from _grad_outputs(run, contiguous)


def _value_differs(run: Run, change: Callable[[torch.Tensor], torch.Tensor], name: str) -> Finding | None:
    """Find an output that depends on the memory of the inputs; its gradient need not be looked at then."""
    try:
        leaves = tuple(change(p).detach().requires_grad_() for p in run.subject.point)
        got = flat(run.subject.apply(run.subject.arguments(leaves)))
    except ForwardRaised:
        return None
    want = flat(run.base.outputs if run.subject.ordinary else run.subject.value(run.subject.point))
    differs = value_differs(run, got, want)
    if not differs.any():
        return None
    k = int(np.flatnonzero(differs)[0])
    where, element = element_of(run.base.outputs, [f"output {i}" for i in range(len(run.base.outputs))], k)
    return Finding(
        Symptom.LAYOUT_DEPENDENT,
        where,
        *apart(float(got[k]), float(want[k])),
        0,
        "",
        element,
        f"with inputs that are {name}; contiguous ones give another value",
    )


def _relaid_input(run: Run, change: Callable[[torch.Tensor], torch.Tensor]) -> Tensors:
    leaves = tuple(change(p).detach().requires_grad_() for p in run.subject.point)
    outputs = run.subject.apply(run.subject.arguments(leaves))
    return materialize(backward(outputs, leaves, tuple(g.contiguous() for g in run.v)), leaves)


def _grad_outputs(run: Run, contiguous: Tensors) -> Iterator[Finding]:
    ones = tuple(torch.ones_like(g, memory_format=torch.contiguous_format) for g in run.v)
    try:
        leaves, outputs = run.subject.forward(run.subject.point)
        plain_ones = materialize(backward(outputs, leaves, ones, retain_graph=True), leaves)
    except (ForwardRaised, BackwardRaised):
        return
    expanded = tuple(torch.ones((), dtype=g.dtype, device=g.device).expand(g.shape) for g in run.v)
    variants: list[tuple[str, Tensors, Tensors]] = [
        ("expanded, as a sum hands it over,", expanded, plain_ones),
        ("transposed", tuple(transposed(g) for g in run.v), contiguous),
        ("a slice, as a concatenation hands it over,", tuple(stepped(g) for g in run.v), contiguous),
    ]
    for name, v, want in variants:
        found = list(
            compare_gradients(
                run,
                Symptom.LAYOUT_DEPENDENT,
                want,
                lambda v=v: materialize(backward(outputs, leaves, v, retain_graph=True), leaves),  # type: ignore[misc]
                where="grad_output",
                explanation=f"with a grad_output that is {name} where a contiguous one gives another gradient",
            )
        )
        yield from found
        if found:
            return
