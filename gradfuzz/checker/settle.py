"""From one measurement to a decision: repeat, move to a neighbour, look at both sides of a kink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import Mask, Rng, direction, generic, signs_and_sizes
from gradfuzz.checker.evaluation import Array, BackwardRaised, First, ForwardRaised, Second, Tensors, flat, move, unflat
from gradfuzz.checker.line import Context, Measurement, Quantity, measure, neighbour, sample
from gradfuzz.checker.numeric import Answer

# Neighbours are sought this far away, in units of each element's scale: near first, then out of a kink's reach.
NEAR, FAR = 0.02, 0.1
NEAR_TRIES, TRIES = 2, 10
# Neighbours asked whether a contradiction stands beside the point too, before additivity decides.
CONFIRMING_NEIGHBOURS = 4
ADDITIVITY_TRIES = 4
# A special case in the code is left by some roundings; of the points there, half must show the right value.
ROUNDINGS_BESIDE, POINTS_BESIDE = 8, 4
# Pieces around a kink that are asked for their slope, and how near to the one-sided slope it must be: a piece's
# own slope changes by its curvature over the distance, far less than by the jump from piece to piece.
PIECES_ASKED = 8
PIECE_SLACK = 0.1
# What a wrong derivative must move the value by, in roundings of the largest value at a distance of about 1.
VISIBLE_ROUNDINGS = 64
# The second look at a contradiction uses other steps, so that no coincidence of the first repeats.
SECOND_LOOK = numeric.WIDE._replace(first=numeric.WIDE.first / 3)


class Outcome(Enum):
    """What is known of one quantity in the end."""

    RIGHT = "agrees"
    RIGHT_NEARBY = "agrees beside the point, which is a kink or cannot be judged"
    WRONG = "contradicts"
    WRONG_AT_POINT = "contradicts at the point itself, though the function is smooth there"
    WRONG_AT_KINK = "lies outside both one-sided slopes"
    UNKNOWN = "cannot be told"


@dataclass(frozen=True, slots=True)
class Decision:
    """An outcome with the measurement that is its best evidence."""

    outcome: Outcome
    evidence: Measurement

    @property
    def wrong(self) -> bool:
        """Whether this is a defect."""
        return self.outcome in (Outcome.WRONG, Outcome.WRONG_AT_POINT, Outcome.WRONG_AT_KINK)


@dataclass(slots=True)
class Bench:
    """A point under judgement: where directions may go, which outputs may be weighted, and the draws."""

    context: Context
    x: Tensors
    outputs: Tensors
    rng: Rng
    allowed_inputs: Mask | None = None
    allowed_outputs: Mask | None = None

    def fresh(self, x: Tensors, first: numeric.LadderSpec) -> Measurement | None:
        """Measure at x with a new direction and new grad_outputs; None where the function refuses x."""
        u = direction(self.rng, x, self.allowed_inputs)
        v = generic(self.rng, self.outputs, self.allowed_outputs)
        try:
            return measure(self.context, x, u, v, self.rng, first=first)
        except (ForwardRaised, BackwardRaised):
            return None

    def neighbours(self, tries: int) -> Iterator[Measurement]:
        """Measure beside the point, the nearest first."""
        for attempt in range(tries):
            near = neighbour(self.x, self.rng, NEAR if attempt < NEAR_TRIES else FAR)
            if (m := self.fresh(near, numeric.NEAR)) is not None:
                yield m


def settle(bench: Bench, quantity: Quantity, first: Measurement) -> Decision:
    """Decide about one quantity from a first measurement that did not agree."""
    decision = _settled(bench, quantity, first)
    if decision.wrong and not _visible(bench, quantity, decision.evidence):
        return Decision(Outcome.UNKNOWN, decision.evidence)
    return decision


def _visible(bench: Bench, quantity: Quantity, m: Measurement) -> bool:
    """Whether what is wrong would move the value by more than the rounding of what it may be left of.

    log(cosh(x)) of 1e-12 is a difference of numbers near log(2): it rounds as they do, though nothing at the point or
    near it shows them. A point at a distance of about 1 does; where the function refuses it, all is visible.
    """
    estimate = m.estimates.get(quantity)
    if estimate is None:
        return True
    far = unflat(flat(m.x) + signs_and_sizes(bench.rng, flat(m.x).size), m.x)
    try:
        there = bench.context.subject.gradient(far, m.v)
    except (ForwardRaised, BackwardRaised):
        return True
    values = flat(there.gradients if quantity is Quantity.HESSIAN else there.values)
    with np.errstate(all="ignore"):
        weight = float(np.abs(flat(m.v)).sum()) if quantity is Quantity.SLOPE else 1.0
        quantum = (
            VISIBLE_ROUNDINGS
            * bench.context.eps
            * weight
            * float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))
        )
        gap = np.abs(m.analytic_of(quantity) - estimate.value) * numeric.WIDE.first
    return not bool((gap <= quantum).all())  # so written that nan is visible


def _settled(bench: Bench, quantity: Quantity, first: Measurement) -> Decision:
    if first.answer(quantity) is Answer.AGREES:
        return Decision(Outcome.RIGHT, first)
    if first.answer(quantity) is Answer.CONTRADICTS:
        again = bench.fresh(bench.x, SECOND_LOOK)
        if again is not None and again.answer(quantity) is Answer.CONTRADICTS:
            return _twice_contradicted(bench, quantity, first)
    if not bench.context.subject.random and _special(bench, quantity, first):
        again = bench.fresh(bench.x, SECOND_LOOK)
        if again is not None and _special(bench, quantity, again) and additive(bench, quantity, first):
            return Decision(Outcome.WRONG_AT_POINT, first)
    if bench.context.subject.random:
        # How many numbers a random function draws may depend on the inputs: the sides of a point are not comparable.
        return _beside(bench, quantity, first)
    if quantity is not Quantity.HESSIAN and (evidence := _outside_both_slopes(bench, first)) is not None:
        return Decision(Outcome.WRONG_AT_KINK, evidence)
    return _beside(bench, quantity, first)


def _twice_contradicted(bench: Bench, quantity: Quantity, first: Measurement) -> Decision:
    for m in bench.neighbours(CONFIRMING_NEIGHBOURS):
        if m.answer(quantity) is Answer.CONTRADICTS:
            return Decision(Outcome.WRONG, first)
        if m.answer(quantity) is Answer.AGREES:
            break
    if not bench.context.subject.random and additive(bench, quantity, first):
        return Decision(Outcome.WRONG_AT_POINT, first)
    return Decision(Outcome.RIGHT_NEARBY, first)


def _beside(bench: Bench, quantity: Quantity, first: Measurement) -> Decision:
    for m in bench.neighbours(TRIES):
        answer = m.answer(quantity)
        if answer is Answer.AGREES:
            return Decision(Outcome.RIGHT_NEARBY, first)
        if answer is Answer.CONTRADICTS:
            again = bench.fresh(m.x, SECOND_LOOK)
            if again is not None and again.answer(quantity) is Answer.CONTRADICTS:
                return Decision(Outcome.WRONG, m)
    return Decision(Outcome.UNKNOWN, first)


def _special(bench: Bench, quantity: Quantity, m: Measurement) -> bool:
    """Whether an element is wrong at the very point and right a few roundings beside it.

    The jitter of such an element is the fault itself, and would excuse it: so it is left out of account, where the
    differences have power and what autograd gives at the jittered points agrees with them.
    """
    estimate, kinked = m.estimates.get(quantity), m.kinked.get(quantity)
    if estimate is None or kinked is None:
        return False
    here = m.analytic_of(quantity)
    with np.errstate(all="ignore"):
        scale = np.maximum(np.abs(here), np.abs(estimate.value))
        gap = np.abs(here - estimate.value)
        suspects = gap > numeric.CONTRADICT_BARS * estimate.error + numeric.POWER_RELATIVE * scale
        suspects &= np.isfinite(estimate.error) & ~kinked
        if not suspects.any():
            return False
        allowed = numeric.AGREE_BARS * estimate.error + numeric.INSIGNIFICANT * scale
        right = np.zeros(len(here))
        for _ in range(POINTS_BESIDE):
            # Unequal steps, so that equal elements part.
            x = neighbour(bench.x, bench.rng, ROUNDINGS_BESIDE * bench.context.eps)
            try:
                there = replace(m, analytic=_again(bench.context, m, x)).analytic_of(quantity)
            except (ForwardRaised, BackwardRaised):
                return False
            right += np.abs(there - estimate.value) <= allowed
    return bool((suspects & (2 * right >= POINTS_BESIDE)).any())


def _again(context: Context, m: Measurement, x: Tensors) -> First:
    """Differentiate at another point along the same direction, to the order of a measurement."""
    if isinstance(m.analytic, Second):
        return context.subject.second(x, m.v, m.u)
    return context.subject.gradient(x, m.v)


def additive(bench: Bench, quantity: Quantity, first: Measurement) -> bool:
    """Whether D(u1 + u2) = D(u1) + D(u2) at the point, for the elements that contradict, or for all if none does.

    Every smooth function's directional derivative is additive; at a tie (the median of equal zeros, the
    maximum of equal entries) it is not, although no single line through the point need show a kink.
    """
    hessian = quantity is Quantity.HESSIAN
    suspects = first.contradicting(quantity)
    suspects = suspects if suspects.any() else np.ones_like(suspects)
    for _ in range(ADDITIVITY_TRIES):
        u1, u2 = (direction(bench.rng, bench.x, bench.allowed_inputs) for _ in range(2))
        parts = [_derivative(bench, first, u, hessian) for u in (u1, u2, move(u1, u2, 1.0))]
        if quantity is Quantity.SLOPE:
            v = flat(first.v)
            kept = v != 0
            parts = [
                numeric.Estimate(np.array([p.value[kept] @ v[kept]]), np.array([p.error[kept] @ np.abs(v[kept])]))
                for p in parts
            ]
        (a, b, both) = parts
        with np.errstate(all="ignore"):
            gap = np.abs(both.value - a.value - b.value)
            scale = np.abs(both.value) + np.abs(a.value) + np.abs(b.value)
            allowed = numeric.AGREE_BARS * (a.error + b.error + both.error) + numeric.INSIGNIFICANT * scale
            known = np.isfinite(allowed) & (allowed <= numeric.POWER_RELATIVE * scale + first.context.eps)
            adds_up = (gap <= allowed) & known
        if not adds_up[suspects].all():
            return False
    return True


def _derivative(bench: Bench, first: Measurement, u: Tensors, hessian: bool) -> numeric.Estimate:
    context = bench.context
    best: numeric.Estimate | None = None
    for spec in (numeric.WIDE, numeric.FINE):
        values, gradients = sample(context, bench.x, u, first.v, first.analytic, context.spec(spec), gradients=hessian)
        samples = gradients if hessian and gradients is not None else values
        estimate = numeric.central(samples, noise=np.zeros(len(samples.centre)), eps=context.eps)
        best = estimate if best is None else best.or_sharper(estimate)
    assert best is not None
    return best


def _outside_both_slopes(bench: Bench, first: Measurement) -> Measurement | None:
    """At a kink of F any answer between the one-sided slopes is right by convention, outside both it is wrong.

    Twice, with independent directions, before it counts. Where the double backward gives the Jacobian by
    output, outputs are judged one by one; else <G, u> against the sum of the outputs' intervals.
    """
    quantity = Quantity.JACOBIAN if Quantity.JACOBIAN in first.comparisons else Quantity.SLOPE
    if not _outside(first, quantity).any():
        return None
    again = bench.fresh(bench.x, SECOND_LOOK)
    if again is None or again.agrees or not _outside(again, quantity).any():
        return None
    return first if _two_pieces(bench, first, quantity) and _two_pieces(bench, again, quantity) else None


def _two_pieces(bench: Bench, m: Measurement, quantity: Quantity) -> bool:
    """Whether just two smooth pieces meet at the point, the case in which its one-sided slopes bound the choices.

    Where more meet (the median of equal entries), a line crosses two of them and the convention may lie in a
    third. So the pieces around are asked for their derivative along the same u: a value that is neither of the
    two slopes belongs to another piece.
    """
    suspects = _outside(m, quantity)
    low, high, bar, scale = _interval(m, quantity)
    slack = numeric.CONTRADICT_BARS * bar + PIECE_SLACK * scale
    context = bench.context
    for _ in range(PIECES_ASKED):
        x = neighbour(bench.x, bench.rng, NEAR)
        try:
            if quantity is Quantity.JACOBIAN:
                there = flat(context.subject.second(x, m.v, m.u).jacobian_u)
            else:
                there = np.array([flat(context.subject.gradient(x, m.v).gradients) @ flat(m.u)])
        except (ForwardRaised, BackwardRaised):
            return False
        with np.errstate(all="ignore"):
            either = (np.abs(there - low) <= slack) | (np.abs(there - high) <= slack)
        if not either[suspects].all():
            return False
    return True


def _outside(m: Measurement, quantity: Quantity) -> Mask:
    analytic = m.analytic_of(quantity)
    low, high, bar, scale = _interval(m, quantity)
    with np.errstate(all="ignore"):
        # Only a kink is judged here: both slopes known, and clearly different.
        kink = high - low > numeric.CONTRADICT_BARS * bar
        if quantity is Quantity.JACOBIAN:
            kink &= m.kinked[quantity]
        slack = numeric.CONTRADICT_BARS * bar + numeric.POWER_RELATIVE * scale
        outside = (analytic < low - slack) | (analytic > high + slack)
        known = np.isfinite(bar) & (bar <= numeric.POWER_RELATIVE * np.maximum(scale, np.abs(analytic)))
    return np.asarray(outside & kink & known & np.isfinite(analytic))


def _interval(m: Measurement, quantity: Quantity) -> tuple[Array, Array, Array, Array]:
    """Give the lower and the higher one-sided slope, their error bar and their scale, by element."""
    eps = m.context.eps
    noise = m.jitter.values if m.jitter is not None else np.zeros(len(m.values.centre))
    right = numeric.one_sided(m.values, +1, noise=noise, eps=eps)
    left = numeric.one_sided(m.values, -1, noise=noise, eps=eps)
    with np.errstate(all="ignore"):
        low, high = np.minimum(right.value, left.value), np.maximum(right.value, left.value)
        bar = right.error + left.error
        scale = np.maximum(np.abs(low), np.abs(high))
        if quantity is Quantity.JACOBIAN:
            return low, high, bar, scale
        # <v, F>: the intervals of the outputs add up, whichever slope each of them takes.
        weights = flat(m.v)
        kept = weights != 0
        ends = np.stack([weights * low, weights * high])[:, kept]
        spread = np.abs(ends).sum(axis=1).max(initial=0.0)
        return (
            np.array([ends.min(axis=0).sum()]),
            np.array([ends.max(axis=0).sum()]),
            np.array([np.abs(weights[kept]) @ bar[kept]]),
            np.array([spread]),
        )
