"""Derivatives that are nan or inf where the function is finite and its slopes converge."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import Mask, direction, generic, unit
from gradfuzz.checker.evaluation import (
    Array,
    BackwardRaised,
    First,
    ForwardRaised,
    Second,
    Tensors,
    flat,
    segments,
    unflat,
)
from gradfuzz.checker.line import sample
from gradfuzz.checker.naming import element_of
from gradfuzz.checker.numeric import Estimate
from gradfuzz.checker.run import Run
from gradfuzz.checker.settle import Bench
from gradfuzz.checker.verdict import Finding, Symptom

# A finding needs one element; looking at more of them costs ladders and says nothing new.
ELEMENTS_LOOKED_AT = 3
# Beyond the fourth root of the dtype's range a product of four such numbers overflows or vanishes by right.
RANGE_ROOT = 0.25
# Down to 6e-8: shorter steps meet the cancellation that a special case at the point was written to avoid.
STEPS = numeric.FINE._replace(rungs=8)
# One-sided slopes count as converged within this fraction of themselves.
CONVERGED = 1e-3


def finite_where_it_should_be(run: Run, bench: Bench, analytic: First) -> Iterator[Finding]:
    """Look at every derivative that is not finite; exclude it from the comparisons that follow.

    An infinite slope (sqrt at 0) is right; so is whatever lies outside the domain. A nan where both one-sided
    slopes converge is wrong, at a kink too: it lies between no two numbers.
    """
    x = flat(run.x)
    gradient = flat(analytic.gradients)
    bad = ~np.isfinite(gradient) & np.isfinite(x)
    whole = bool(np.isfinite(flat(analytic.values)).all())
    judged = whole and _in_range(run)
    # Infinity in another argument makes 0 * inf, which nobody would mend; a mask of -inf in the same one counts.
    for part in segments(run.x):
        elsewhere = ~np.isfinite(x)
        elsewhere[part] = False
        if elsewhere.any() and (~np.isfinite(gradient[part]) & np.isfinite(x[part])).any():
            judged = False
    if bad.any():
        bench.allowed_inputs = np.isfinite(x) & ~bad
        run.allowed_inputs = bench.allowed_inputs
        if judged:
            yield from _look(run, bench, bad, gradient, 1)
        return
    if not isinstance(analytic, Second) or not judged:
        return
    hessian = flat(analytic.hessian_u)
    bad = ~np.isfinite(hessian) & np.isfinite(x)
    if bad.any():
        yield from _look(run, bench, bad, hessian, 2)


def _in_range(run: Run) -> bool:
    """Whether all inputs are of a size whose products stay finite."""
    for t in run.subject.wrt:
        info = torch.finfo(t.dtype)
        sizes = np.abs(flat((t,)))
        sizes = sizes[np.isfinite(sizes) & (sizes > 0)]
        if sizes.size and (sizes.max() > info.max**RANGE_ROOT or sizes.min() < info.tiny**RANGE_ROOT):
            return False
    return True


def _look(run: Run, bench: Bench, bad: Mask, analytic: Array, order: int) -> Iterator[Finding]:
    for k in np.flatnonzero(bad)[:ELEMENTS_LOOKED_AT]:
        # With ones for weights a person can check the number; fresh ones exclude a coincidence.
        limits = [_slopes(run, bench, int(k), order, plain=plain) for plain in (True, False)]
        if any(limit is None for limit in limits):
            continue
        name, element = element_of(run.subject.wrt, run.subject.names, int(k))
        want = limits[0]
        assert want is not None  # none of them is
        yield Finding(
            Symptom.NONFINITE,
            name,
            f"{analytic[k]}",
            want,
            order,
            "rev" if order == 1 else "rev-rev",
            element,
            explanation="the function is finite here and its slopes converge",
        )
        return


def _slopes(run: Run, bench: Bench, k: int, order: int, *, plain: bool) -> str | None:
    """Measure the one-sided slopes along element k alone, with fresh weights; None where they do not converge."""
    v = generic(bench.rng, bench.outputs, bench.allowed_outputs)
    v = unflat(np.sign(np.abs(flat(v))), v) if plain else v
    s = max(abs(float(flat(run.x)[k])), 1.0)
    u = unit(run.x, k, s)
    try:
        if order == 1:
            first = run.context.subject.gradient(run.x, v)
            again = flat(first.gradients)[k]
            weights = flat(v)
        else:
            w = direction(bench.rng, run.x, bench.allowed_inputs)
            w = unflat(np.sign(np.abs(flat(w))), w) if plain else w
            second = run.context.subject.second(run.x, v, w)
            first, again, weights = second, flat(second.hessian_u)[k], flat(w)
        if np.isfinite(again):
            return None
        ends = _both_ends(run, u, v, first, weights, order)
    except (ForwardRaised, BackwardRaised):
        return None
    if not ends:
        return None
    texts = [f"{e.value[0] / s:.6g} +- {e.error[0] / s:.1g}" for e in ends]
    if len(ends) == 1:
        return f"{texts[0]} (from the side inside the domain)"
    gap = abs(ends[0].value[0] - ends[1].value[0])
    if gap <= numeric.CONTRADICT_BARS * (ends[0].error[0] + ends[1].error[0]):
        return texts[0]
    return f"a number between {ends[1].value[0] / s:.6g} and {ends[0].value[0] / s:.6g}"


def _both_ends(run: Run, u: Tensors, v: Tensors, first: First, weights: Array, order: int) -> list[Estimate]:
    """Give the converged one-sided slopes: of both sides, or of the only one inside the domain; else none."""
    spec = run.context.spec(STEPS)
    values, gradients = sample(run.context, run.x, u, v, first, spec, gradients=order >= 2)
    measured = gradients if order >= 2 and gradients is not None else values
    line = measured.dot(weights)
    # What the inner product may be off by, in another order of its terms: no growth of the quotients.
    summing = 4 * run.context.eps * float(measured.largest @ np.abs(weights))
    ends = []
    for side in (1, -1):
        rows = line.plus if side > 0 else line.minus
        if not np.isfinite(rows).all():
            if np.isfinite(rows).any():
                return []
            continue
        slope = numeric.one_sided(line, side, noise=np.zeros(1), eps=run.context.eps)
        scale = max(abs(float(slope.value[0])), float(line.largest[0]))
        if not slope.error[0] <= CONVERGED * scale:
            return []
        if not _bounded(rows, line.centre, spec.steps, summing):
            return []
        ends.append(slope)
    return ends


def _bounded(rows: Array, centre: Array, steps: Array, rounding: float) -> bool:
    """Whether the difference quotients settle: a root's grow by sqrt(ratio) a rung, a logarithm's by a constant."""
    with np.errstate(all="ignore"):
        quotients = np.maximum(np.abs(rows - centre)[:, 0] - rounding, 0.0) / steps
    half = len(quotients) // 2
    return bool(quotients[-1] <= 1.5 * quotients[:half].max() + np.finfo(float).tiny)
