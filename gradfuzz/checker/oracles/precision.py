"""What rounding may cost: low-precision gradients against double ones, and doubles that pass through a lower dtype."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradfuzz.checker.direction import FLATNESS, PRECISION, Mask, Rng, generic, scales, signs_and_sizes
from gradfuzz.checker.evaluation import Array, BackwardRaised, ForwardRaised, Subject, Tensors, flat, unflat
from gradfuzz.checker.naming import element_of
from gradfuzz.checker.run import DOUBLES, Run
from gradfuzz.checker.verdict import Finding, Symptom

# A bias stands out of scatter after this many points; bfloat16 and float16 scatter more.
POINTS = {4: 6, 2: 8}
SPREAD = 0.05
LEAST_BIAS = 1e-5
BIAS_OVER_SPREAD = 2.5
# The relative step whose effect on a double gradient is a million roundings: a gradient that passes through
# float32 (or less) does not move at all, one computed in double follows the slope.
TINY_STEP = 2.0**-33
FLAT_DRAWS = 4
MILLION_ROUNDINGS = 2.0**17


def precision_is_kept(run: Run) -> Iterator[Finding]:
    """A low-precision gradient scatters around the double one without bias; a double one is computed in double."""
    if run.own_precision or run.first_order_wrong:
        return
    if run.context.subject is run.subject:
        yield from _flat_in_double(run)
    else:
        yield from _biased(run)


def _flat_in_double(run: Run) -> Iterator[Finding]:
    """Look for a gradient that stays put, to the bit, where its own slope says it moves by a million roundings."""
    if run.order < 2 or run.refused_second or any(t.dtype not in DOUBLES for t in run.subject.wrt):
        return
    rng = run.rng(FLATNESS)
    subject, x = run.subject, run.x
    s = scales(x)
    count = len(s)
    stuck = np.ones(count, dtype=bool)
    first = np.zeros(count)
    for _ in range(FLAT_DRAWS):
        u = unflat(signs_and_sizes(rng, count) * s, x)
        v = generic(rng, run.weights, run.allowed_outputs)
        try:
            second = subject.second(x, v, u)
            here = flat(second.gradients)
            there = flat(subject.gradient(tuple(a + TINY_STEP * d for a, d in zip(x, u, strict=True)), v).gradients)
        except (ForwardRaised, BackwardRaised):
            return
        with np.errstate(all="ignore"):
            # Only where the double backward says that this very gradient moves may its standing still count.
            expected = np.abs(flat(second.hessian_u)) * TINY_STEP
            # The gradient is rounded at its own size, its tensor's, or that of what it is computed from.
            natural = float(np.abs(flat(second.values)).max(initial=0.0)) + np.abs(flat(x))
            natural = natural * float(np.abs(flat(v)).max(initial=0.0)) / np.maximum(s, np.finfo(float).tiny)
            size = np.maximum(natural, np.abs(here).max(initial=0.0, where=np.isfinite(here)))
            moves = expected > MILLION_ROUNDINGS * run.eps * size
            stuck &= moves & (here == there) & np.isfinite(here)
        first = here
        if not stuck.any():
            return
    k = int(np.flatnonzero(stuck)[0])
    name, element = element_of(subject.wrt, subject.names, k)
    yield Finding(
        Symptom.PRECISION,
        name,
        f"{first[k]:.6g}, the same for inputs a million roundings apart",
        "a gradient computed in double",
        1,
        "rev",
        element,
        explanation="the backward passes through a lower dtype (float32 or less) on its way",
    )


def _relative(low: Array, double: Array) -> Array:
    """(low - double) / (|double| + 0.01 max), signed as double is: positive where low precision is too large.

    Relative, but never to an element that is nearly zero.
    """
    size = np.abs(double) + 0.01 * np.abs(double).max(initial=0.0) + np.finfo(float).tiny
    return np.asarray((low - double) * np.where(double < 0, -1.0, 1.0) / size)


def _biased(run: Run) -> Iterator[Finding]:
    """Compare at points around x: rounding scatters, a fault is a bias of one sign; twice, with fresh draws."""
    rng = run.rng(PRECISION)
    bias = _bias(run, rng)
    if bias is None or not bias.any():
        return
    again = _bias(run, rng)
    if again is None or not (bias & again).any():
        return
    k = int(np.flatnonzero(bias & again)[0])
    point = run.subject.point
    v = generic(run.rng(PRECISION), run.base.outputs)
    low, double = _pair(run, point, v)
    name, element = element_of(run.subject.wrt, run.subject.names, k)
    dtype = str(run.subject.wrt[0].dtype).removeprefix("torch.")
    yield Finding(
        Symptom.PRECISION,
        name,
        f"{low[k]:.6g} in {dtype}",
        f"{double[k]:.6g}, as in double",
        1,
        "rev",
        element,
        explanation="off in the same direction at every point nearby, which rounding is not",
    )


def _pair(run: Run, point: Tensors, v: Tensors) -> tuple[Array, Array]:
    low = flat(run.subject.gradient(point, v).gradients)
    double_subject: Subject = run.context.subject
    up = unflat(flat(point), double_subject.wrt)
    weights = unflat(flat(v), run.weights)
    return low, flat(double_subject.gradient(up, weights).gradients)


def _bias(run: Run, rng: Rng) -> Mask | None:
    """Tell by element whether low precision is off to one side at every one of several points."""
    width = min(t.dtype.itemsize // (2 if t.dtype.is_complex else 1) for t in run.subject.wrt)
    points = POINTS.get(width, POINTS[2])
    base = run.subject.point
    s = scales(base)
    quotients, gaps = [], []
    natural = 0.0
    for _ in range(points):
        moved = unflat(flat(base) + SPREAD * s * rng.uniform(-1, 1, len(s)), base)
        v = generic(rng, run.base.outputs, run.allowed_outputs)
        try:
            low, double = _pair(run, moved, v)
            size = float(np.abs(flat(run.subject.value(moved))).max(initial=0.0))
        except (ForwardRaised, BackwardRaised):
            return None
        if not np.isfinite(size):
            return None
        # The gradient is relative to the value over the input's own scale.
        natural = max(natural, size * float(np.abs(flat(v)).max(initial=0.0)))
        with np.errstate(all="ignore"):
            quotients.append(_relative(low, double))
            gaps.append(np.abs(low - double))
    q = np.vstack(quotients)
    with np.errstate(all="ignore"):
        one_sign = (np.sign(q) == np.sign(q[0])).all(axis=0) & np.isfinite(q).all(axis=0)
        least = np.abs(q).min(axis=0) > max(2 * run.eps, LEAST_BIAS)
        steady = np.abs(q.mean(axis=0)) > BIAS_OVER_SPREAD * q.std(axis=0)
        large = np.vstack(gaps).mean(axis=0) > 4 * run.eps * natural / np.maximum(s, np.finfo(float).tiny)
    return np.asarray(one_sign & least & steady & large)
