"""What rounding may cost: low-precision gradients against double ones, and doubles that pass through a lower dtype."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gradfuzz.checker.direction import FLATNESS, PRECISION, Mask, Rng, direction, generic, scales
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised, Second, Subject, double_backward
from gradfuzz.checker.naming import element_of
from gradfuzz.checker.run import DOUBLES, Run
from gradfuzz.checker.tensors import Array, Tensors, flat, move, unflat
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
# A derivative that a scaled grad_output leaves alone is computed from it in a lower dtype, unless so few roundings of
# its terms are all that it could have moved.
VISIBLE_ROUNDINGS = 2.0**8
# Below this a product is no longer a double of full precision, and may well stand still.
SMALLEST = 1e-290
# A gap this many times the smallest normal number of a dtype is none of leaving its range.
NORMAL_MARGIN = 16


def precision_is_kept(run: Run) -> Iterator[Finding]:
    """A low-precision gradient scatters around the double one without bias; a double one is computed in double."""
    if run.own_precision or run.first_order_wrong:
        return
    if run.context.subject is run.subject:
        yield from _flat_in_double(run)
    else:
        yield from _biased(run)


def _flat_in_double(run: Run) -> Iterator[Finding]:
    """Look for derivatives that stay put, to the bit, where they ought to move by a hundred thousand roundings or more.

    A gradient is moved in two ways: by its inputs, where its own second derivative says that it follows; and by its
    grad_output, in which it is linear, and its second derivative too.
    """
    if any(t.dtype not in DOUBLES for t in run.subject.wrt):
        return
    rng = run.rng(FLATNESS)
    second = run.order >= 2 and not run.refused_second
    stuck: dict[str, Mask] = {}
    here: First = First((), (), ())
    subject = run.context.subject
    for attempt in range(FLAT_DRAWS):
        # The first look is at the double backward that is there already, on its graph.
        given = run.second if attempt == 0 and run.shared and second else None
        u = run.second_along if given is not None else direction(rng, run.x)
        v = run.weights if given is not None else generic(rng, run.weights, run.allowed_outputs)
        scaled = tuple(g * (1 + TINY_STEP) for g in v)
        try:
            there: First
            if given is not None:
                here, there = given, double_backward(given.leaves, given.outputs, scaled, u, retain_graph=True)
            elif second:
                here, there = subject.second(run.x, v, u), subject.second(run.x, scaled, u)
            else:
                here, there = subject.gradient(run.x, v), subject.gradient(run.x, scaled)
            size = _size(run, here, v)
            still = {}
            if isinstance(here, Second) and isinstance(there, Second):
                moved = subject.gradient(move(run.x, u, TINY_STEP), v).gradients
                expected = np.abs(flat(here.hessian_u)) * TINY_STEP > MILLION_ROUNDINGS * run.eps * size
                still["inputs"] = _same(here.gradients, moved) & expected
            still["grad_outputs"] = _same(here.gradients, there.gradients) & _visible(run, here.gradients, size)
            if isinstance(here, Second) and isinstance(there, Second):
                at_second = _visible(run, here.hessian_u, _size_of_second(run, here, u, size))
                still["grad_outputs, at the second order"] = _same(here.hessian_u, there.hessian_u) & at_second
        except (ForwardRaised, BackwardRaised):
            return
        stuck = {name: mask & stuck.get(name, mask) for name, mask in still.items()}
        if not any(mask.any() for mask in stuck.values()):
            return
    name, mask = next((name, mask) for name, mask in stuck.items() if mask.any())
    k = int(np.flatnonzero(mask)[0])
    order = 2 if name.endswith("order") else 1
    where, element = element_of(run.subject.wrt, run.subject.names, k)
    shown = flat(here.hessian_u if order == 2 and isinstance(here, Second) else here.gradients)[k]
    yield Finding(
        Symptom.PRECISION,
        where,
        f"{shown:.6g}, the same for {name.split(',')[0]} half a million roundings apart",
        "a gradient computed in double" if order == 1 else "a second derivative computed in double",
        order,
        "rev" if order == 1 else "rev-rev",
        element,
        explanation="the backward passes through a lower dtype (float32 or less) on its way",
    )


def _same(here: Tensors, there: Tensors) -> Mask:
    """The elements that are equal to the bit, and neither zero nor out of range."""
    a, b = flat(here), flat(there)
    return np.asarray((a == b) & np.isfinite(a) & (np.abs(a) > SMALLEST))


def _size(run: Run, first: First, v: Tensors) -> Array:
    """What a gradient is rounded relative to: its own size, its tensor's, or that of what it is computed from."""
    with np.errstate(all="ignore"):
        here = np.abs(flat(first.gradients))
        natural = float(np.abs(flat(first.values)).max(initial=0.0)) + np.abs(flat(run.x))
        largest_v = float(np.abs(flat(v)).max(initial=0.0))
        natural = natural * largest_v / np.maximum(scales(run.x), np.finfo(float).tiny)
        return np.asarray(np.maximum(natural + largest_v, here.max(initial=0.0, where=np.isfinite(here))))


def _size_of_second(run: Run, first: First, u: Tensors, size: Array) -> Array:
    """What a second derivative is rounded relative to: what the first is, over x; or exp(a - b) of large inputs."""
    sizes = [np.abs(flat(t)).max(initial=0.0) for t in (run.x, u, first.gradients)]
    return np.maximum(size / np.maximum(scales(run.x), np.finfo(float).tiny), float(np.prod(sizes)))


def _visible(run: Run, derivatives: Tensors, size: Array) -> Mask:
    """The elements that a scaled grad_output moves by many roundings of what they may be computed from."""
    values = np.abs(flat(derivatives))
    return np.asarray(values * TINY_STEP > VISIBLE_ROUNDINGS * run.eps * np.maximum(size, values.max(initial=0.0)))


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
    low, double = (flat(first.gradients) for first in _pair(run, point, v))
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


def _pair(run: Run, point: Tensors, v: Tensors) -> tuple[First, First]:
    low = run.subject.gradient(point, v)
    double_subject: Subject = run.context.subject
    up = unflat(flat(point), double_subject.wrt)
    weights = unflat(flat(v), run.weights)
    return low, double_subject.gradient(up, weights)


def _rounded_from(run: Run, low: First, double: First) -> float:
    """Give what a value is rounded relative to: its own size, or that of terms which cancel in it.

    (1 - z) h + z tanh(-h) of a small h is nothing in low precision, as its two terms are equal there: so is its slope.
    """
    values = flat(low.values)
    size = float(np.abs(values).max(initial=0.0))
    with np.errstate(all="ignore"):
        return max(size, float(np.abs(values - flat(double.values)).max(initial=0.0)) / run.eps)


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
            low_first, double_first = _pair(run, moved, v)
        except (ForwardRaised, BackwardRaised):
            return None
        size = _rounded_from(run, low_first, double_first)
        if not np.isfinite(size):
            return None
        low, double = flat(low_first.gradients), flat(double_first.gradients)
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
        gap = np.vstack(gaps).mean(axis=0)
        # Below the normal range a dtype rounds absolutely, and at last to zero.
        large = gap > 4 * run.eps * natural / np.maximum(s, np.finfo(float).tiny)
        large &= gap > NORMAL_MARGIN * max(torch.finfo(t.dtype).smallest_normal for t in run.subject.wrt)
    return np.asarray(one_sign & least & steady & large)
