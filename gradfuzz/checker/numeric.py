"""Derivative estimates with error bars, from samples along a line: arrays alone, no autograd.

Notation: V(t) is a vector measured at x + t u. A ladder is a falling sequence of steps h_k = h_0 / rho^k.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]


class LadderSpec(NamedTuple):
    """The steps of a ladder: `first`, `first` / `ratio`, ..., `rungs` of them."""

    first: float
    ratio: float
    rungs: int

    @property
    def steps(self) -> Array:
        """The step sizes, largest first."""
        return np.asarray(self.first / self.ratio ** np.arange(self.rungs), dtype=np.float64)


# The screen: nearly every case is right, and on smooth functions three rungs from a hundredth of the inputs'
# scale say so with power (39.9 of 40 draws over nine functions, where 0.1 with four rungs reached 37.3).
SCREEN = LadderSpec(0.01, 2.0, 3)
# A tenth of the inputs' own scale sees most functions as smooth; four halvings cancel errors up to h^8.
WIDE = LadderSpec(0.1, 2.0, 4)
# Fine enough for a function that changes over a thousandth of its scale; ten rungs reach 4e-9, where rounding
# in double still leaves seven digits of a slope: an oscillation must be finer than that to pass for smooth.
FINE = LadderSpec(1e-3, 4.0, 10)
# A step of 0.02 from a neighbour that lies 0.02 away does not reach back to the point itself.
NEAR = LadderSpec(0.02, 2.0, 5)

# |a - m| within 4 error bars is agreement, beyond 25 contradiction; between them nothing is said. The error
# bar of a converged tableau is the last change of a sequence that shrinks at least fourfold a rung, so its
# true error is a fraction of a bar: 4 leaves room for unlucky cancellation, 25 for a coincidence of it.
AGREE_BARS = 4.0
CONTRADICT_BARS = 25.0
# Relative difference below which nothing is claimed: the least that a maintainer would act on in double.
INSIGNIFICANT = 1e-6
# An error bar proves something only where it is well below the value (a thousandth), or below a millionth
# of the natural scale of the quantity where the value itself is (nearly) zero.
POWER_RELATIVE = 1e-3
POWER_NATURAL = 1e-6
# In a low precision that differences must be taken in, no error bar gets below this many roundings: 4 bars of
# 4 roundings over a step of a twentieth.
POWER_ROUNDINGS = 320
# An element this much smaller than its tensor's largest is judged by the largest: its rounding is.
SMALLEST_SHARE = 1e-3
# Jitter beyond this many roundings is V's own variation; steeper than the slope by this factor it contradicts it.
WILD_NOISE = 1e3
WILD_SLOPE = 100.0
# A gap this many times a rung's rounding can be decided by that rung.
CLEAR_OF_ROUNDING = 10
# The even part of V must stand this far above the noise before its slope means anything.
EVEN_ABOVE_NOISE = 50.0
# log E ratio: 2 where V is smooth, 1 at a kink, 0 at a jump; between 1 and 2 the doubt goes to the kink.
SMOOTH_EXPONENT = 1.4


class Answer(IntEnum):
    """What a comparison of an analytic with a numeric derivative says, best first."""

    AGREES = 0
    CANNOT_TELL = 1
    CONTRADICTS = 2


@dataclass(frozen=True, slots=True)
class Samples:
    """V at the centre and at the rungs of a ladder on both sides; nan where the function left its domain.

    Attributes:
        spec: The ladder.
        centre: V(0), n elements.
        plus: V(h_k), one row a rung.
        minus: V(-h_k), one row a rung.
    """

    spec: LadderSpec
    centre: Array
    plus: Array
    minus: Array

    @property
    def largest(self) -> Array:
        """The largest magnitude of each element over the ladder, nan and inf left out."""
        stack = np.abs(np.vstack([self.centre[None], self.plus, self.minus]))
        return np.asarray(np.where(np.isfinite(stack), stack, 0.0).max(axis=0))

    def dot(self, weights: Array) -> Samples:
        """The samples of <weights, V>, a single element."""
        kept = weights != 0
        w = weights[kept]
        return Samples(
            self.spec,
            np.array([self.centre[kept] @ w]),
            (self.plus[:, kept] @ w)[:, None],
            (self.minus[:, kept] @ w)[:, None],
        )


class Estimate(NamedTuple):
    """A derivative along the line and how far to trust it; an error of inf says nothing is known."""

    value: Array
    error: Array

    def or_sharper(self, other: Estimate) -> Estimate:
        """Take, by element, the other estimate where its error bar is smaller."""
        sharper = other.error < self.error
        return Estimate(np.where(sharper, other.value, self.value), np.where(sharper, other.error, self.error))


def _extrapolate(column: Array, factors: list[float]) -> list[Array]:
    """Build the columns of a Richardson tableau: A[k][j] = (f_j A[k][j-1] - A[k-1][j-1]) / (f_j - 1)."""
    columns = [column]
    for factor in factors:
        last = columns[-1]
        following = np.full_like(last, np.nan)
        following[1:] = (factor * last[1:] - last[:-1]) / (factor - 1)
        columns.append(following)
    return columns


def _best(columns: list[Array], rounding: Array) -> Estimate:
    """Take, by element, the entry with the least error bar: |change| to both parents plus rounding over h."""
    values, errors = [], []
    for j in range(1, len(columns)):
        here, left = columns[j][j:], columns[j - 1][j:]
        above = columns[j - 1][j - 1 : -1]
        values.append(here)
        errors.append(np.maximum(np.abs(here - left), np.abs(here - above)) + rounding[j:])
    value = np.vstack(values)
    error = np.vstack(errors)
    error = np.where(np.isfinite(error) & np.isfinite(value), error, np.inf)
    best = error.argmin(axis=0)
    columns_index = np.arange(value.shape[1])
    return Estimate(value[best, columns_index], error[best, columns_index])


def central(samples: Samples, *, noise: Array, eps: float) -> Estimate:
    """Estimate V'(0) from both sides.

    Central differences err in even powers of h, so the j-th column cancels h^2j. `noise` is what rounding
    does to V, by element; at least 2 eps |V| is assumed, and what the tableau itself shows.
    """
    h = samples.spec.steps[:, None]
    with np.errstate(all="ignore"):
        column = (samples.plus - samples.minus) / (2 * h)
        factors = [samples.spec.ratio ** (2 * j) for j in range(1, samples.spec.rungs)]
        columns = _extrapolate(column, factors)
        seen = np.maximum(noise, 2 * eps * samples.largest)
        if len(columns) > 2:
            # Entries extrapolated twice differ by rounding once the ladder has converged.
            changes = np.abs(columns[2][1:] - columns[2][:-1]) * h[1:]
            seen = np.fmax(seen, np.fmax.reduce(changes[-3:], axis=0, initial=0.0))
        rounding = 2 * np.maximum(seen, eps * (np.abs(samples.plus) + np.abs(samples.minus))) / h
        return _best(columns, rounding)


def wild(samples: Samples, value: Array, *, noise: Array, eps: float) -> Mask:
    """Tell by element whether V varies within the shortest of the steps, as sin(x) does at 1e77.

    The jitter `noise` is a quotient of the shortest step there is: wild is where it is no rounding of V, and far
    steeper than the slope `value` that was found.
    """
    with np.errstate(all="ignore"):
        no_rounding = noise > WILD_NOISE * eps * samples.largest
        return np.asarray(no_rounding & (noise / (2 * eps) > WILD_SLOPE * np.abs(value)))


def confirmed_by_short_steps(samples: Samples, analytic: Array, value: Array, *, noise: Array, eps: float) -> Mask:
    """Whether plain quotients of short steps lie well nearer to `value` than to `analytic`.

    Long steps cannot see a function that varies within them: a staircase looks smooth to steps much longer than
    its treads, an oscillation to steps of its period; and samples that lost their argument beside a large constant
    repeat, so that short steps find no slope at all. The finest rung whose rounding is a tenth of the gap
    decides, together with the one above it.
    """
    h = samples.spec.steps[:, None]
    with np.errstate(all="ignore"):
        quotients = (samples.plus - samples.minus) / (2 * h)
        seen = np.maximum(noise, 2 * eps * samples.largest)
        usable = (2 * seen / h <= np.abs(analytic - value) / CLEAR_OF_ROUNDING) & np.isfinite(quotients)
        near = np.abs(quotients - value) <= np.abs(analytic - value) / 2
        near &= ~wild(samples, value, noise=noise, eps=eps)
    finest = np.where(usable.any(axis=0), len(h) - 1 - usable[::-1].argmax(axis=0), 0)
    columns = np.arange(quotients.shape[1])
    above = np.maximum(finest - 1, 0)
    return np.asarray(usable.any(axis=0) & near[finest, columns] & (near[above, columns] | ~usable[above, columns]))


def one_sided(samples: Samples, side: int, *, noise: Array, eps: float) -> Estimate:
    """Estimate the slope to the right (`side` = 1) or to the left (-1); its tableau cancels every power of h."""
    h = samples.spec.steps[:, None]
    rows = samples.plus if side > 0 else samples.minus
    with np.errstate(all="ignore"):
        column = (rows - samples.centre) / (side * h)
        factors = [samples.spec.ratio**j for j in range(1, samples.spec.rungs)]
        seen = np.maximum(noise, 2 * eps * samples.largest)
        rounding = 2 * np.maximum(seen, eps * (np.abs(rows) + np.abs(samples.centre))) / h
        return _best(_extrapolate(column, factors), rounding)


def not_smooth(samples: Samples, *, noise: Array, eps: float) -> Mask:
    """Tell by element whether V has a kink or a jump at the centre (`smoothness`)."""
    return smoothness(samples, noise=noise, eps=eps).kinked


class Smoothness(NamedTuple):
    """By element: whether V has a kink or a jump at the centre, and whether the ladder could tell at all."""

    kinked: Mask
    decided: Mask


def smoothness(samples: Samples, *, noise: Array, eps: float) -> Smoothness:
    """Judge by the even part V(h) + V(-h) - 2 V(0), which falls with h^2, and with h only at a kink.

    The two finest rungs that stand above the noise decide: coarser ones may see a kink that lies elsewhere.
    """
    with np.errstate(all="ignore"):
        even = np.abs(samples.plus + samples.minus - 2 * samples.centre)
        floor = EVEN_ABOVE_NOISE * np.maximum(noise, 2 * eps * samples.largest)
        visible = (even > floor) & np.isfinite(even)
        exponent = np.log(even[:-1] / even[1:]) / np.log(samples.spec.ratio)
    both = visible[:-1] & visible[1:]
    kinked = np.zeros(even.shape[1], dtype=bool)
    decided = np.zeros(even.shape[1], dtype=bool)
    for k in reversed(range(len(exponent))):
        fresh = both[k] & ~decided
        kinked |= fresh & (exponent[k] < SMOOTH_EXPONENT)
        decided |= fresh
    return Smoothness(kinked, decided)


class Comparison(NamedTuple):
    """The answers by element, and |a - m| in units of what would still agree."""

    answers: np.ndarray[Any, np.dtype[np.int8]]
    mismatch: Array

    @property
    def answer(self) -> Answer:
        """The worst answer of any element; nothing to compare agrees."""
        return Answer(int(self.answers.max(initial=0)))


def largest_share(values: Array, parts: tuple[slice, ...]) -> Array:
    """Give each element the largest finite magnitude of its own part."""
    result = np.zeros_like(values)
    for part in parts:
        chunk = np.abs(values[part])
        result[part] = np.where(np.isfinite(chunk), chunk, 0.0).max(initial=0.0)
    return result


def compare(
    analytic: Array,
    estimate: Estimate,
    parts: tuple[slice, ...],
    *,
    jitter: Array,
    natural: Array,
    least_scale: Array,
    eps: float,
    rtol: float = 0.0,
    atol: float = 0.0,
    doubt: float = 0.0,
) -> Comparison:
    """Compare an analytic derivative with an estimate, element by element.

    Args:
        analytic: The values by autograd.
        estimate: The values by differences, with their error bars.
        parts: Where each tensor lies in the vectors; scales are taken within a tensor.
        jitter: What rounding of the inputs does to `analytic`.
        natural: The scale that rounding in the function itself is relative to.
        least_scale: A scale below which no element is judged by its own size.
        eps: The machine epsilon of the arithmetic.
        rtol: Widens what agrees, relative to the estimate; never narrows.
        atol: Widens what agrees.
        doubt: Widens what does not contradict, and nothing else.
    """
    value, error = estimate
    with np.errstate(all="ignore"):
        own = np.maximum(np.abs(analytic), np.where(np.isfinite(value), np.abs(value), 0.0))
        tensor = largest_share(own, parts)
        scale = np.maximum.reduce([own, SMALLEST_SHARE * tensor, least_scale])
        # What a correct derivative may lose to its own rounding, 64 and 8 roundings deep.
        floor = 16 * jitter + 64 * eps * tensor + 8 * eps * natural
        wide = atol + rtol * np.abs(value)
        gap = np.abs(analytic - value)
        within = AGREE_BARS * error + floor + INSIGNIFICANT * scale + wide
        beyond = CONTRADICT_BARS * error + 4 * (floor + doubt) + INSIGNIFICANT * scale + wide
        least_relative, least_natural = (
            max(POWER_RELATIVE, POWER_ROUNDINGS * eps),
            max(POWER_NATURAL, POWER_ROUNDINGS * eps),
        )
        powerful = AGREE_BARS * error + floor <= np.maximum(least_relative * scale, least_natural * natural)
        answers = np.full(len(analytic), Answer.CANNOT_TELL, dtype=np.int8)
        answers[(gap <= within) & powerful] = Answer.AGREES
        answers[~(gap <= beyond) & np.isfinite(error)] = Answer.CONTRADICTS  # so written that nan contradicts
        mismatch = np.where(gap == 0, 0.0, gap / within)
    return Comparison(answers, mismatch)
