"""The same tensor for two arguments."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Tensors, backward, flat, materialize
from gradfuzz.checker.oracles.metamorphic import compare_gradients
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


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
    if not pairs:
        return
    i, j = pairs[0]
    point = list(run.subject.point)
    point[j] = point[i].clone()
    try:
        want = _apart(run, point, i, j)
    except (ForwardRaised, BackwardRaised):
        return  # equal arguments may lie outside the domain
    if flat(want).size:
        yield from compare_gradients(
            run,
            Symptom.ALIASING,
            want,
            lambda: _together(run, point, i, j),
            explanation=f"{run.subject.names[i]} and {run.subject.names[j]} are one tensor; "
            "two equal tensors give another sum of gradients",
        )


def _apart(run: Run, point: list[torch.Tensor], i: int, j: int) -> Tensors:
    """Give the gradients with two equal tensors for i and j, their sum in both places."""
    grads = list(run.subject.gradient(point, run.v).gradients)
    grads[i] = grads[j] = grads[i] + grads[j]
    return tuple(grads)


def _together(run: Run, point: list[torch.Tensor], i: int, j: int) -> Tensors:
    """Give the gradients with one tensor for both i and j, its gradient in both places."""
    leaves = list(run.subject.leaves(point))
    leaves[j] = leaves[i]
    outputs = run.subject.apply(run.subject.arguments(leaves))
    distinct = [leaf for k, leaf in enumerate(leaves) if k != j]
    grads = list(materialize(backward(outputs, distinct, run.v), distinct))
    grads.insert(j, grads[i])
    return tuple(grads)
