"""Which tensors are handed over: the same one twice, and which of them ask for a gradient."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Tensors, backward, flat, materialize
from gradfuzz.checker.oracles.metamorphic import compare_gradients
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# Every input alone is tried for so many of them; a function of more is tried at the first ones.
MOST_ALONE = 4


def mask_is_irrelevant(run: Run) -> Iterator[Finding]:
    """A gradient does not depend on whether the other inputs ask for one."""
    count = len(run.subject.wrt)
    if count < 2 or run.base.grads is None:
        return
    point = run.subject.point
    everything = run.gradients_at(point)
    for i in range(min(count, MOST_ALONE)):
        wanted = tuple(k == i for k in range(count))

        def alone(i: int = i, wanted: tuple[bool, ...] = wanted) -> Tensors:
            gradient = run.subject.gradient(point, run.v, wanted=wanted).gradients[i]
            return tuple(gradient if k == i else g for k, g in enumerate(everything))

        found = list(
            compare_gradients(
                run, Symptom.REQUIRES_GRAD_MASK, everything, alone,
                explanation=f"when {run.subject.names[i]} alone asks for a gradient; another value when all do",
            )
        )  # fmt: skip
        yield from found
        if found:
            return


def aliasing_is_irrelevant(run: Run) -> Iterator[Finding]:
    """Passing one tensor for two arguments adds their gradients, as two equal tensors would give them."""
    wrt = run.subject.wrt
    if run.base.grads is None:
        return
    pairs = [
        (i, j)
        for i in range(len(wrt))
        for j in range(i + 1, len(wrt))
        if wrt[i].shape == wrt[j].shape and wrt[i].dtype == wrt[j].dtype
    ]
    for i, j in pairs[:1]:
        point = list(run.subject.point)
        point[j] = point[i].clone()
        v = run.v

        def apart(i: int = i, j: int = j, point: list[torch.Tensor] = point) -> Tensors:
            grads = list(run.subject.gradient(tuple(point), v).gradients)
            grads[i] = grads[i] + grads[j]
            grads[j] = grads[i]
            return tuple(grads)

        def together(i: int = i, j: int = j, point: list[torch.Tensor] = point) -> Tensors:
            leaves = list(run.subject.leaves(tuple(point)))
            leaves[j] = leaves[i]
            outputs = run.subject.apply(run.subject.arguments(leaves))
            distinct = [leaf for k, leaf in enumerate(leaves) if k != j]
            grads = iter(materialize(backward(outputs, distinct, v), distinct))
            result = [leaf if k == j else next(grads) for k, leaf in enumerate(leaves)]
            result[j] = result[i]
            return tuple(result)

        try:
            want = apart()
        except (ForwardRaised, BackwardRaised):
            return  # equal arguments may lie outside the domain
        if flat(want).size:
            yield from compare_gradients(
                run, Symptom.ALIASING, want, together,
                explanation=f"{run.subject.names[i]} and {run.subject.names[j]} are one tensor; "
                "two equal tensors give another sum of gradients",
            )  # fmt: skip
