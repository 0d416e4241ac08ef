"""Measuring along one direction: analytic vectors beside difference quotients, and what their comparison says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple

import numpy as np
import torch

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import JITTER_DRAWS as JITTER_DRAWS
from gradfuzz.checker.direction import JITTER_ROUNDINGS as JITTER_ROUNDINGS
from gradfuzz.checker.direction import Mask, Rng, jittered, scales, signs_and_sizes
from gradfuzz.checker.evaluation import (
    Array,
    BackwardRaised,
    First,
    ForwardRaised,
    Second,
    Subject,
    Tensors,
    flat,
    move,
    segments,
    unflat,
)
from gradfuzz.checker.numeric import Answer, Comparison, Estimate, LadderSpec, Samples


class Quantity(Enum):
    """What is compared along one direction u with grad_outputs v."""

    SLOPE = "slope"  # <G, u> against <v, dF/du>: the first derivative as a number
    JACOBIAN = "jacobian"  # P = d<G, u>/dv against dF/du: the first derivative by output
    HESSIAN = "hessian"  # Hu = d<G, u>/dx against dG/du: the second derivative by input


class Tolerance(NamedTuple):
    """What a caller allows beyond the measured error; it only ever widens what agrees.

    `least_step` bounds the ladders from below, 0 leaves them as they are.
    """

    rtol: float = 0.0
    atol: float = 0.0
    least_step: float = 0.0


@dataclass(slots=True)
class Context:
    """What stays the same over all measurements of one check.

    Attributes:
        subject: The function, in the precision that differences are taken in.
        order: 2 where second derivatives are to be compared, 1 where only gradients are.
        eps: The machine epsilon of that precision.
        tolerance: What the caller allows beyond the measured error.
        left_out: Elements of the outputs that are not judged.
        quantities: What is compared.
    """

    subject: Subject
    order: int
    eps: float
    tolerance: Tolerance = field(default_factory=Tolerance)
    left_out: Mask | Literal[False] = False
    quantities: frozenset[Quantity] = frozenset(Quantity)

    def spec(self, spec: LadderSpec) -> LadderSpec:
        """Cut a ladder where the caller's least step is, keeping three rungs for an error bar."""
        rungs = spec.rungs
        while rungs > 3 and spec.first / spec.ratio ** (rungs - 1) < self.tolerance.least_step:
            rungs -= 1
        return spec._replace(rungs=rungs)


@dataclass(slots=True)
class Jitter:
    """What two roundings of the inputs do to each of the vectors."""

    values: Array
    gradients: Array
    jacobian_u: Array
    hessian_u: Array


@dataclass(slots=True)
class Measurement:
    """Everything measured at a point x along a direction u with grad_outputs v.

    Attributes:
        values: Samples of F on the finest ladder walked.
        gradients: Samples of G on it; None at first order.
        comparisons: By quantity, answers over its elements.
        estimates: By quantity, the numeric derivative that was the most decisive.
        kinked: By quantity, elements whose samples are not smooth at x.
    """

    context: Context
    x: Tensors
    u: Tensors
    v: Tensors
    analytic: First
    values: Samples
    gradients: Samples | None
    comparisons: dict[Quantity, Comparison] = field(default_factory=dict)
    estimates: dict[Quantity, Estimate] = field(default_factory=dict)
    kinked: dict[Quantity, Mask] = field(default_factory=dict)
    jitter: Jitter | None = None

    def analytic_of(self, quantity: Quantity) -> Array:
        """The vector by autograd that the quantity compares."""
        if quantity is Quantity.SLOPE:
            return np.array([_dot(flat(self.analytic.gradients), flat(self.u))])
        assert isinstance(self.analytic, Second)  # the other two exist at second order only
        return flat(self.analytic.jacobian_u if quantity is Quantity.JACOBIAN else self.analytic.hessian_u)

    def answer(self, quantity: Quantity) -> Answer:
        """The answer over all elements; a contradiction at a kink is no contradiction."""
        comparison = self.comparisons.get(quantity)
        if comparison is None:
            return Answer.AGREES
        answers = np.where(
            (comparison.answers == Answer.CONTRADICTS) & self.kinked[quantity],
            Answer.CANNOT_TELL,
            comparison.answers,
        )
        return Answer(int(answers.max(initial=0)))

    def contradicting(self, quantity: Quantity) -> Mask:
        """The elements that contradict and are smooth."""
        return np.asarray((self.comparisons[quantity].answers == Answer.CONTRADICTS) & ~self.kinked[quantity])

    @property
    def agrees(self) -> bool:
        """Whether everything compared agrees with power."""
        return all(c.answer is Answer.AGREES for c in self.comparisons.values())


def _dot(a: Array, b: Array) -> float:
    """The inner product over the elements where b is not zero: 0 * inf is not part of a direction."""
    kept = b != 0
    return float(a[kept] @ b[kept])


def sample(
    context: Context,
    x: Sequence[torch.Tensor],
    u: Sequence[torch.Tensor],
    v: Sequence[torch.Tensor],
    analytic: First,
    spec: LadderSpec,
    *,
    gradients: bool,
) -> tuple[Samples, Samples | None]:
    """Measure F, and G where asked, at the rungs of a ladder along u; a step that raises leaves nan."""
    centre_values = flat(analytic.values)
    centre_gradients = flat(analytic.gradients)
    rows: list[tuple[list[Array], list[Array]]] = []
    for sign in (1.0, -1.0):
        value_rows, gradient_rows = [], []
        for h in spec.steps:
            value = np.full(len(centre_values), np.nan)
            gradient = np.full(len(centre_gradients), np.nan)
            moved = move(x, u, sign * float(h))
            try:
                if gradients:
                    first = context.subject.gradient(moved, v)
                    value, gradient = flat(first.values), flat(first.gradients)
                else:
                    value = flat(context.subject.value(moved))
            except (ForwardRaised, BackwardRaised):
                pass  # outside the domain there is no information, and no error either
            value_rows.append(value)
            gradient_rows.append(gradient)
        rows.append((value_rows, gradient_rows))
    values = Samples(spec, centre_values, np.array(rows[0][0]), np.array(rows[1][0]))
    if not gradients:
        return values, None
    return values, Samples(spec, centre_gradients, np.array(rows[0][1]), np.array(rows[1][1]))


def _jitter(context: Context, m: Measurement, rng: Rng) -> Jitter:
    base = m.analytic
    second = base if isinstance(base, Second) else None
    reference = [
        flat(base.values),
        flat(base.gradients),
        flat(second.jacobian_u) if second else np.zeros(0),
        flat(second.hessian_u) if second else np.zeros(0),
    ]
    worst = [np.zeros_like(r) for r in reference]
    for moved in jittered(rng, m.x, context.eps):
        try:
            if second:
                other: First = context.subject.second(moved, m.v, m.u)
            else:
                other = context.subject.gradient(moved, m.v)
        except (ForwardRaised, BackwardRaised):
            continue
        there = [flat(other.values), flat(other.gradients)]
        if isinstance(other, Second):
            there += [flat(other.jacobian_u), flat(other.hessian_u)]
        for k, vector in enumerate(there):
            with np.errstate(all="ignore"):
                worst[k] = np.fmax(worst[k], np.abs(vector - reference[k]))
    return Jitter(*worst)


def _compare(m: Measurement, values: Samples, gradients: Samples | None) -> None:
    """Compare on one ladder; an element that agreed on an earlier one stays so."""
    count_v, count_u = flat(m.v).size, flat(m.u).size
    zero = np.zeros
    jitter = m.jitter or Jitter(zero(count_v), zero(count_u), zero(count_v), zero(count_u))
    with np.errstate(all="ignore"):
        x = np.abs(flat(m.x))
        largest_x = float(x.max(initial=0.0, where=np.isfinite(x)))
        # What rounding inside the function is relative to: its values, or the inputs it computes them from.
        natural = np.maximum(numeric.largest_share(values.largest, segments(m.v)), largest_x)
        wanted = m.context.quantities
        if Quantity.SLOPE in wanted:
            _compare_slope(m, values, jitter, natural)
        if isinstance(m.analytic, Second) and gradients is not None:
            if Quantity.JACOBIAN in wanted:
                _compare_jacobian(m, values, jitter, natural)
            if Quantity.HESSIAN in wanted:
                _compare_hessian(m, gradients, jitter, natural)


def _compare_slope(m: Measurement, values: Samples, jitter: Jitter, natural: Array) -> None:
    """<G, u> against the difference quotient of <v, F>."""
    context = m.context
    v, u, g = flat(m.v), flat(m.u), flat(m.analytic.gradients)
    kept_u, kept_v = u != 0, v != 0
    weights = np.abs(v[kept_v])
    line = values.dot(v)
    noise = np.array([float(weights @ jitter.values[kept_v])])
    estimate = numeric.central(line, noise=noise, eps=context.eps)
    moving = numeric.central(values, noise=jitter.values, eps=context.eps).value
    # What the two inner products add up to before their terms cancel.
    absolute = float(np.abs(g[kept_u] * u[kept_u]).sum() + np.abs(v[kept_v] * moving[kept_v]).sum())
    least = numeric.SMALLEST_SHARE * absolute if np.isfinite(absolute) else 0.0
    comparison = numeric.compare(
        m.analytic_of(Quantity.SLOPE),
        estimate,
        (slice(0, 1),),
        jitter=np.array([float(np.abs(u[kept_u]) @ jitter.gradients[kept_u])]),
        natural=np.array([float(weights @ natural[kept_v])]),
        least_scale=np.array([least]),
        eps=context.eps,
        rtol=context.tolerance.rtol,
        atol=context.tolerance.atol,
    )
    summing = context.eps * float(weights @ values.largest[kept_v])
    smooth = numeric.smoothness(line, noise=noise + summing, eps=context.eps)
    if numeric.wild(values, moving, noise=jitter.values, eps=context.eps)[kept_v].any():
        # A sum hides that one of its terms is wild.
        smooth = numeric.Smoothness(np.ones(1, dtype=bool), np.ones(1, dtype=bool))
    _add(m, Quantity.SLOPE, line, estimate, smooth, comparison)


def _compare_jacobian(m: Measurement, values: Samples, jitter: Jitter, natural: Array) -> None:
    """d<G, u>/dv against the difference quotient of F, by output element."""
    context = m.context
    estimate = numeric.central(values, noise=jitter.values, eps=context.eps)
    comparison = numeric.compare(
        m.analytic_of(Quantity.JACOBIAN),
        estimate,
        segments(m.v),
        jitter=jitter.jacobian_u,
        natural=natural,
        least_scale=np.zeros(len(natural)),
        eps=context.eps,
        rtol=context.tolerance.rtol,
        atol=context.tolerance.atol,
    )
    smooth = numeric.smoothness(values, noise=jitter.values, eps=context.eps)
    _add(m, Quantity.JACOBIAN, values, estimate, smooth, comparison)


def _compare_hessian(m: Measurement, gradients: Samples, jitter: Jitter, natural: Array) -> None:
    """d<G, u>/dx against the difference quotient of G, by input element; the Hessian of <v, F> is symmetric."""
    context = m.context
    parts = segments(m.x)
    s = np.maximum(scales(m.x), np.finfo(np.float64).tiny)
    estimate = numeric.central(gradients, noise=jitter.gradients, eps=context.eps)
    sizes = [np.abs(flat(t)) for t in (m.x, m.u, m.analytic.gradients)]
    product = float(np.prod([size.max(initial=0.0, where=np.isfinite(size)) for size in sizes]))
    comparison = numeric.compare(
        m.analytic_of(Quantity.HESSIAN),
        estimate,
        parts,
        jitter=jitter.hessian_u,
        natural=float(natural.max(initial=0.0)) * float(np.abs(flat(m.v)).max(initial=0.0)) / s,
        least_scale=numeric.SMALLEST_SHARE * numeric.largest_share(flat(m.analytic.gradients), parts),
        eps=context.eps,
        rtol=context.tolerance.rtol,
        atol=context.tolerance.atol,
        # Rounding of large inputs inside exp(a - b) and its like, which jitter of two draws may miss.
        doubt=context.eps * product if np.isfinite(product) else 0.0,
    )
    smooth = numeric.smoothness(gradients, noise=jitter.gradients, eps=context.eps)
    _add(m, Quantity.HESSIAN, gradients, estimate, smooth, comparison)


def _add(
    m: Measurement,
    quantity: Quantity,
    samples: Samples,
    estimate: Estimate,
    smooth: numeric.Smoothness,
    comparison: Comparison,
) -> None:
    """Merge a comparison with what earlier ladders said: agreement stands, the smaller error bar is kept."""
    excluded = _excluded(m, quantity)
    kinked = smooth.kinked
    answers = comparison.answers.copy()
    answers[excluded] = Answer.AGREES
    mismatch = np.where(excluded, 0.0, comparison.mismatch)
    if quantity in m.comparisons:
        before = m.comparisons[quantity]
        answers = np.where(before.answers == Answer.AGREES, Answer.AGREES, answers)
        # A contradiction of the earlier ladder that the later one cannot settle stays one.
        stays = (before.answers == Answer.CONTRADICTS) & (answers == Answer.CANNOT_TELL)
        answers = np.where(stays, Answer.CONTRADICTS, answers).astype(np.int8)
        # A kink at the point shows at every step; one that only longer steps see lies elsewhere.
        kinked = np.where(smooth.decided, kinked, m.kinked[quantity])
        old = m.estimates[quantity]
        # Two ladders that contradict each other know nothing: long steps see a slope where short ones find the
        # samples flat, because the argument is lost beside a large constant.
        with np.errstate(all="ignore"):
            apart = np.abs(estimate.value - old.value) > numeric.CONTRADICT_BARS * (estimate.error + old.error)
            apart &= np.isfinite(estimate.error + old.error)
        answers = np.where(apart & (answers == Answer.CONTRADICTS), Answer.CANNOT_TELL, answers)
        sharper = estimate.error <= old.error
        estimate = Estimate(np.where(sharper, estimate.value, old.value), np.minimum(estimate.error, old.error))
        mismatch = np.where(sharper, mismatch, before.mismatch)
    if samples.spec.rungs >= numeric.FINE.rungs and (answers == Answer.CONTRADICTS).any():
        noise = _noise_of(m, quantity)
        short = numeric.confirmed_by_short_steps(
            samples, m.analytic_of(quantity), estimate.value, noise=noise, eps=m.context.eps
        )
        answers = np.where((answers == Answer.CONTRADICTS) & ~short, Answer.CANNOT_TELL, answers)
    m.comparisons[quantity] = Comparison(answers.astype(np.int8), mismatch)
    m.estimates[quantity] = estimate
    m.kinked[quantity] = kinked


def _noise_of(m: Measurement, quantity: Quantity) -> Array:
    """What two roundings of the inputs do to the samples that a quantity is estimated from; 0 before it is known."""
    if m.jitter is None:
        return np.zeros(1)
    if quantity is Quantity.SLOPE:
        kept = flat(m.v) != 0
        return np.array([float(np.abs(flat(m.v)[kept]) @ m.jitter.values[kept])])
    return m.jitter.values if quantity is Quantity.JACOBIAN else m.jitter.gradients


def _excluded(m: Measurement, quantity: Quantity) -> Mask:
    """Elements nothing is said about: outside the domain, or not finite (judged by an oracle of their own)."""
    analytic = m.analytic_of(quantity)
    if quantity is Quantity.SLOPE:
        return ~np.isfinite(analytic)
    if quantity is Quantity.JACOBIAN:
        return m.context.left_out | ~np.isfinite(flat(m.analytic.values)) | ~np.isfinite(analytic)
    gradients = flat(m.analytic.gradients)
    return ~np.isfinite(flat(m.x)) | ~np.isfinite(gradients) | ~np.isfinite(analytic)


def measure(
    context: Context,
    x: Tensors,
    u: Tensors,
    v: Tensors,
    rng: Rng,
    *,
    first: LadderSpec = numeric.SCREEN,
    analytic: First | None = None,
) -> Measurement:
    """Compare analytic with numeric derivatives at x along u: a first ladder, and others where it did not decide.

    Raises:
        ForwardRaised: The function refuses x.
        BackwardRaised: A backward raises at x.
    """
    second = context.order >= 2
    if analytic is None:
        analytic = context.subject.second(x, v, u) if second else context.subject.gradient(x, v)
    values, gradients = sample(context, x, u, v, analytic, context.spec(first), gradients=second)
    m = Measurement(context, x, u, v, analytic, values, gradients)
    _compare(m, values, gradients)
    if m.agrees:
        return m
    m.jitter = _jitter(context, m, rng)
    m.comparisons.clear()
    _compare(m, values, gradients)
    if m.agrees:
        return m
    for spec in (numeric.WIDE, numeric.FINE):
        m.values, m.gradients = sample(context, x, u, v, analytic, context.spec(spec), gradients=second)
        _compare(m, m.values, m.gradients)
        if m.agrees:
            break
    return m


def neighbour(x: Tensors, rng: Rng, distance: float) -> Tensors:
    """Give a point near x, every finite element moved by about `distance` of its scale."""
    s = scales(x)
    return unflat(np.where(np.isfinite(flat(x)), flat(x) + distance * s * signs_and_sizes(rng, len(s)), flat(x)), x)
