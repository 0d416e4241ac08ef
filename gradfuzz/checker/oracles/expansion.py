"""Expansion: a tensor whose elements lie on top of each other is as good as one that has them apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from gradfuzz.checker.answers import Answers
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised, backward, double_backward
from gradfuzz.checker.oracles.metamorphic import compare, unless_random
from gradfuzz.checker.run import Run
from gradfuzz.checker.screen import ADJOINT, close_sums
from gradfuzz.checker.tensors import Tensors, flat, materialize
from gradfuzz.checker.verdict import Finding, Symptom


def expansion_is_irrelevant(run: Run) -> Iterator[Finding]:
    """Same values, same result: grad_outputs as a sum hands them over, or expanded along one dimension; inputs too.

    The second derivative with the middle ones is looked at for odd seeds alone, which a campaign draws half of.
    """
    if run.base.grads is None:
        return
    ones = tuple(torch.ones((), dtype=g.dtype, device=g.device).expand(g.shape) for g in run.v)
    slices = [along(g, run.seed) for g in run.v]
    part = tuple(t.contiguous().expand(g.shape) for (t, _), g in zip(slices, run.v, strict=True))
    found = list(_grad_outputs(run, ones, "expanded, as a sum hands it over,"))
    if not found and any(flag for _, flag in slices):
        found = list(_grad_outputs(run, part, "expanded along one dimension", second=run.seed % 2 == 1))
    yield from found or _inputs(run)


def along(x: torch.Tensor, k: int) -> tuple[torch.Tensor, bool]:
    """Give the first slice along one dimension, of size 1 there, and whether there is a dimension to expand along."""
    dims = [d for d in range(x.dim()) if x.shape[d] > 1]
    if not dims:
        return x, False
    return x.narrow(dims[k % len(dims)], 0, 1), True


def _grad_outputs(run: Run, expanded: Tensors, name: str, *, second: bool = False) -> Iterator[Finding]:
    """Hand over expanded grad_outputs on the base graph; contiguous ones too, unless the adjoint identity holds."""
    leaves, outputs = run.base.leaves, run.base.graph
    twice = second and run.second is not None

    def with_them(v: Tensors) -> Answers:
        if twice:
            u = run.second_along
            return Answers.of(double_backward(leaves, outputs, v, u, retain_graph=True, as_given=True))
        return Answers.of(First(outputs, backward(outputs, leaves, v, retain_graph=True), leaves))

    def apart() -> Answers:
        return with_them(tuple(g.contiguous() for g in expanded))

    if not twice and _adjoint(run, expanded):
        return
    try:
        want = apart()
    except BackwardRaised:
        return
    yield from compare(
        run,
        Symptom.LAYOUT_DEPENDENT,
        want,
        lambda: with_them(expanded),
        again=apart,
        where="grad_output",
        explanation=f"with a grad_output that is {name} where a contiguous one gives another {{what}}",
    )


def _adjoint(run: Run, v: Tensors) -> bool:
    """Whether <G(x, v), u> is <J u, v>, with the J u of generic grad_outputs: then nothing else need be asked."""
    jacobian_u = run.given.jacobian_u
    if jacobian_u is None:
        return False
    try:
        grads = backward(run.base.graph, run.base.leaves, v, retain_graph=True)
    except BackwardRaised:
        return False
    gradients = flat(materialize(grads, run.base.leaves))
    return close_sums(gradients * flat(run.second_along), jacobian_u * flat(v), ADJOINT)


def _inputs(run: Run) -> Iterator[Finding]:
    """Inputs expanded along one dimension, the last first.

    Seen from the part that is expanded: equal elements tie, and which of them a maximum chooses is nobody's promise,
    but the sum of their gradients is. Where that cancels, as behind a mean that is subtracted, it rounds as they do.
    """
    subject = run.subject
    if subject.random:
        return
    if not any(along(x, -1 - run.seed)[1] for x in subject.point):
        return

    def with_inputs(point: Tensors, *, lie_apart: bool) -> Answers:
        first = [along(x, -1 - run.seed)[0] for x in point]
        parts = tuple(part.clone(memory_format=torch.contiguous_format).requires_grad_() for part in first)
        full = tuple(p.expand(x.shape) for p, x in zip(parts, subject.wrt, strict=True))
        if lie_apart:
            full = tuple(x.contiguous() for x in full)
        outputs = subject.apply(subject.arguments(full))
        grads = materialize(backward(outputs, (*parts, *full), run.v), (*parts, *full))
        spread = tuple(g.expand(x.shape) for g, x in zip(grads, subject.wrt, strict=False))
        terms = flat(grads[len(parts) :])
        return replace(Answers.of(First(outputs, spread, full)), largest_term=float(np.abs(terms).max(initial=0.0)))

    try:
        want = with_inputs(subject.point, lie_apart=True)
    except (ForwardRaised, BackwardRaised):
        return  # equal elements may lie outside the domain
    if not want.finite:
        return
    differences = compare(
        run,
        Symptom.LAYOUT_DEPENDENT,
        want,
        lambda: with_inputs(subject.point, lie_apart=False),
        again=lambda: with_inputs(subject.point, lie_apart=True),
        near=lambda nearby: with_inputs(nearby, lie_apart=True),
        explanation="with inputs that are expanded along one dimension; contiguous ones give another {what}",
    )
    yield from unless_random(run, differences)
