"""Tensors that share memory: the same one for two arguments, and views of one base."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradfuzz.checker.answers import Answers
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised, Second, backward, double_backward
from gradfuzz.checker.oracles.metamorphic import compare, contiguous
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Tensors, materialize
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
        if wrt[i].shape == wrt[j].shape and wrt[i].dtype == wrt[j].dtype and wrt[i].numel()
    ]
    if not pairs:
        return
    i, j = pairs[run.seed % len(pairs)]

    def equal(point: Tensors) -> list[torch.Tensor]:
        return [point[i].clone() if k == j else t for k, t in enumerate(point)]

    point = equal(run.subject.point)
    try:
        want = _apart(run, point, i, j)
    except (ForwardRaised, BackwardRaised):
        return  # equal arguments may lie outside the domain
    if not want.finite:
        return
    yield from compare(
        run,
        Symptom.ALIASING,
        want,
        lambda: _together(run, point, i, j),
        again=lambda: _apart(run, point, i, j),
        near=lambda nearby: _apart(run, equal(nearby), i, j),
        explanation=f"{run.subject.names[i]} and {run.subject.names[j]} are one tensor; "
        "two equal tensors give another {what}",
    )


def _apart(run: Run, point: list[torch.Tensor], i: int, j: int) -> Answers:
    """Take two equal tensors for i and j, moving as one, with the sum of their derivatives in both places."""
    leaves, outputs = run.subject.forward(point)

    def added(parts: Tensors) -> Tensors:
        both = list(parts)
        both[i] = both[j] = parts[i] + parts[j]
        return tuple(both)

    if run.second is None:
        grads = materialize(backward(outputs, leaves, run.v), leaves)
        return Answers.of(First(outputs, added(grads), leaves))
    u = list(run.second_along)
    u[j] = u[i]
    twice = double_backward(leaves, outputs, run.v, u)
    return Answers.of(Second(outputs, added(twice.gradients), leaves, added(twice.hessian_u), twice.jacobian_u))


def _together(run: Run, point: list[torch.Tensor], i: int, j: int) -> Answers:
    """Take one tensor for both i and j, with its derivatives in both places."""
    leaves = list(run.subject.leaves(point))
    leaves[j] = leaves[i]
    outputs = run.subject.apply(run.subject.arguments(leaves))
    distinct = tuple(leaf for k, leaf in enumerate(leaves) if k != j)

    def doubled(parts: Tensors) -> Tensors:
        both = list(parts)
        both.insert(j, parts[i])
        return tuple(both)

    if run.second is None:
        grads = materialize(backward(outputs, distinct, run.v), distinct)
        return Answers.of(First(outputs, doubled(grads), tuple(leaves)))
    u = tuple(d for k, d in enumerate(run.second_along) if k != j)
    twice = double_backward(distinct, outputs, run.v, u)
    hessian = doubled(twice.hessian_u)
    return Answers.of(Second(outputs, doubled(twice.gradients), tuple(leaves), hessian, twice.jacobian_u))


def views_are_as_good(run: Run) -> Iterator[Finding]:
    """Inputs that are views of one base, none of them a leaf, give the gradients that tensors of their own give."""
    wrt = run.subject.wrt
    if run.base.grads is None or len({(t.dtype, t.device) for t in wrt}) > 1:
        return
    yield from compare(
        run,
        Symptom.ALIASING,
        contiguous(run),
        lambda: _views(run),
        explanation="with inputs that are views of one base tensor; tensors of their own give another {what}",
    )


def _views(run: Run) -> Answers:
    subject = run.subject

    def joined(tensors: Tensors) -> torch.Tensor:
        return torch.cat([t.detach().reshape(-1) for t in tensors])

    base = joined(subject.point).requires_grad_()
    parts = base.split([t.numel() for t in subject.wrt])
    inputs = tuple(part.view(t.shape) for part, t in zip(parts, subject.wrt, strict=True))
    outputs = subject.apply(subject.arguments(inputs))
    if run.second is None:
        return Answers.of(First(outputs, backward(outputs, (base,), run.v), (base,)))
    return Answers.of(double_backward((base,), outputs, run.v, (joined(run.second_along),)))
