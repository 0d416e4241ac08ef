"""Evidence for an explanation: one input's derivative beside what it should be, at several points and grad_outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gradfuzz.checker import numeric
from gradfuzz.checker.column import of_gradients, of_values
from gradfuzz.checker.direction import Mask, Rng, direction, generic, scales
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised
from gradfuzz.checker.numeric import Estimate
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Array, Tensors, flat, segments, unflat

# Elements of an input that are looked at; of a larger one, the first half of them are those that locating suspects.
MOST_ELEMENTS = 64
# Both zero, beside the largest of the tensor: nothing is wrong there, and nothing is shown to be right.
BLANK = 1e-9
# Elements are moved by factors up to this far from 1, by a share of their scale; far enough that any other function
# of them would show, near enough to stay in most domains.
FACTOR = 0.2
SHIFT = 0.37


@dataclass(frozen=True)
class Evidence:
    """The derivative of one input at one point.

    Attributes:
        here: Whether this is the point of the finding.
        x: The inputs.
        v: The grad_outputs.
        y: The values of the outputs.
        slot: Which of the inputs.
        indices: Which elements of it, parts of complex ones by themselves.
        got: By autograd.
        estimate: By differences; an error of inf where nothing is known.
        u: The direction, of a second derivative; None of a first.
    """

    here: bool
    x: Tensors
    v: Tensors
    y: Tensors
    slot: int
    indices: np.ndarray[tuple[int], np.dtype[np.int64]]
    got: Array
    estimate: Estimate
    u: Tensors | None = None

    @property
    def want(self) -> Array:
        """By differences."""
        return self.estimate.value

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the input."""
        return tuple(self.x[self.slot].shape)

    @property
    def complete(self) -> bool:
        """Whether all elements are here, so that they can be compared with one another by their places."""
        return len(self.indices) == flat((self.x[self.slot],)).size

    @cached_property
    def sizes(self) -> Array:
        """By element, the larger of got and want."""
        return np.maximum(np.abs(self.got), np.where(self.known, np.abs(self.want), 0.0))

    @cached_property
    def known(self) -> Mask:
        """By element, whether differences say anything."""
        with np.errstate(all="ignore"):
            sharp = self.estimate.error <= numeric.POWER_RELATIVE * np.abs(self.want).max(initial=0.0)
            either = sharp | (self.estimate.error <= numeric.POWER_RELATIVE * np.abs(self.got - self.want))
        return np.asarray(np.isfinite(self.estimate.error) & np.isfinite(self.got) & either)

    @cached_property
    def wrong(self) -> Mask:
        """By element, whether got contradicts want."""
        with np.errstate(all="ignore"):
            gap = np.abs(self.got - self.want)
            bar = numeric.CONTRADICT_BARS * self.estimate.error + numeric.INSIGNIFICANT * self.sizes
        return np.asarray(self.known & (gap > bar) & ~self._blank)

    @cached_property
    def right(self) -> Mask:
        """By element, whether got agrees with a want that is not zero."""
        with np.errstate(all="ignore"):
            gap = np.abs(self.got - self.want)
            bar = numeric.AGREE_BARS * self.estimate.error + numeric.INSIGNIFICANT * self.sizes
            powerful = bar <= numeric.POWER_RELATIVE * self.sizes
        return np.asarray(self.known & (gap <= bar) & powerful & ~self._blank)

    @cached_property
    def _blank(self) -> Mask:
        return np.asarray(self.sizes <= BLANK * self.sizes.max(initial=0.0))

    def near(self, other: Array) -> Mask:
        """By element, whether `other` is got, as far as the error of want allows to say."""
        with np.errstate(all="ignore"):
            allowed = numeric.AGREE_BARS * self.estimate.error + FIT * np.maximum(self.sizes, np.abs(other))
            return np.asarray(np.abs(self.got - other) <= allowed)


# A formula that is to give every wrong number must give eight digits of it, or what the error bars leave of them:
# chance would have to hit a hundredth of the gap even where the fault is one part in a million.
FIT = 1e-8


def first_order(run: Run, x: Tensors, slot: int, suspects: list[int], rng: Rng) -> list[Evidence]:
    """Gather the gradient of one input at x and at points made from it; those the function refuses are left out."""
    found: list[Evidence] = []
    for here, there in _points(run, x, rng):
        with suppress(ForwardRaised, BackwardRaised):
            found += _gradients(run, there, slot, suspects, rng, here=here)
    return found


def _gradients(run: Run, x: Tensors, slot: int, suspects: list[int], rng: Rng, *, here: bool) -> Iterator[Evidence]:
    """Give evidence at one point: two grad_outputs, for their Jacobian is the same."""
    context = run.context
    outputs = context.subject.value(x)
    part = segments(x)[slot]
    indices = _chosen(part, suspects)
    v = _weights(run, outputs, rng)
    first = context.subject.gradient(x, v)
    columns = [of_values(context, x, v, first, part.start + int(i)) for i in indices]
    values = np.array([estimate.value for estimate, _ in columns]).reshape(len(indices), -1)
    errors = np.array([np.where(kinked, np.inf, e.error) for e, kinked in columns]).reshape(len(indices), -1)
    for weights in (v, _weights(run, outputs, rng)):
        w = flat(weights)
        kept = w != 0
        got = flat(context.subject.gradient(x, weights).gradients)[part][indices]
        # Errors of columns are bounds, not draws: they add up.
        estimate = Estimate(values[:, kept] @ w[kept], errors[:, kept] @ np.abs(w[kept]))
        yield Evidence(here, x, weights, outputs, slot, indices, got, estimate)


def of_other(run: Run, e: Evidence, other: int) -> Evidence | None:
    """Give what `e` is of one input for another of its shape; None where it cannot be had."""
    context, part = run.context, segments(e.x)[other]
    try:
        first = context.subject.gradient(e.x, e.v)
        columns = [of_values(context, e.x, e.v, first, part.start + int(i)) for i in e.indices]
    except (ForwardRaised, BackwardRaised):
        return None
    w = flat(e.v)
    estimate = Estimate(
        np.array([c.value @ w for c, _ in columns]),
        np.array([np.where(kinked, np.inf, c.error)[w != 0] @ np.abs(w[w != 0]) for c, kinked in columns]),
    )
    got = flat(first.gradients)[part][e.indices]
    return Evidence(e.here, e.x, e.v, e.y, other, e.indices, got, estimate)


def second_order(run: Run, x: Tensors, slot: int, suspects: list[int], rng: Rng) -> list[Evidence]:
    """Gather d<G, u>/dx of one input at x and at points made from it, along two directions at each."""
    found = []
    for here, there in _points(run, x, rng):
        for _ in range(2):
            with suppress(ForwardRaised, BackwardRaised):
                found.append(_along(run, there, slot, suspects, rng, direction(rng, there), here=here))
    return found


def _along(run: Run, x: Tensors, slot: int, suspects: list[int], rng: Rng, u: Tensors, *, here: bool) -> Evidence:
    context = run.context
    outputs = context.subject.value(x)
    v = _weights(run, outputs, rng)
    second = context.subject.second(x, v, u)
    estimate, kinked = of_gradients(context, x, v, second, u)
    part = segments(x)[slot]
    indices = _chosen(part, suspects)
    error = np.where(kinked, np.inf, estimate.error)
    return Evidence(
        here,
        x,
        v,
        outputs,
        slot,
        indices,
        flat(second.hessian_u)[part][indices],
        Estimate(estimate.value[part][indices], error[part][indices]),
        u,
    )


def by_block(run: Run, x: Tensors, slot: int, suspects: list[int], rng: Rng) -> list[Evidence]:
    """Gather d<G, u>/dx of one input along directions that move one input alone, each input in turn."""
    found = []
    u = flat(direction(rng, x))
    for part in segments(x):
        alone = np.zeros_like(u)
        alone[part] = u[part]
        with suppress(ForwardRaised, BackwardRaised):
            found.append(_along(run, x, slot, suspects, rng, unflat(alone, x), here=True))
    return found


def _chosen(part: slice, suspects: list[int]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Choose elements of an input: all of a small one, else suspects and others spread evenly."""
    count = part.stop - part.start
    if count <= MOST_ELEMENTS:
        return np.arange(count)
    mine = [k - part.start for k in suspects if part.start <= k < part.stop][: MOST_ELEMENTS // 2]
    spread = np.linspace(0, count - 1, MOST_ELEMENTS - len(mine)).astype(np.int64)
    return np.unique(np.concatenate([np.array(mine, dtype=np.int64), spread]))


def _weights(run: Run, outputs: Tensors, rng: Rng) -> Tensors:
    """Draw grad_outputs; real ones of complex outputs, for with those a missing conjugate is plain to see."""
    allowed = run.allowed_outputs
    v = generic(rng, outputs, allowed if allowed is not None and allowed.size == flat(outputs).size else None)
    return tuple((g.real + 0 * g) if g.dtype.is_complex else g for g in v)


def _points(run: Run, x: Tensors, rng: Rng) -> Iterator[tuple[bool, Tensors]]:
    """Give x itself, and points that keep or break what may be special about it.

    Scaled, equal elements by equal factors: signs, zeros, ties, symmetry and places stay. Permuted within each
    tensor: what hangs on a value moves, what hangs on a place stays. With other signs. Shifted by a constant: ties
    stay, zeros go.
    """
    yield True, x
    values = flat(x)
    finite = np.where(np.isfinite(values), values, 0.0)
    _, same = np.unique(np.abs(finite), return_inverse=True)
    for _ in range(2):
        yield False, unflat(values * (1 + FACTOR * rng.uniform(-1, 1, len(values))[same]), x)
    permuted = values.copy()
    for part, t in zip(segments(x), x, strict=True):
        pairs = permuted[part].reshape(-1, 2 if t.dtype.is_complex else 1)
        permuted[part] = pairs[rng.permutation(len(pairs))].reshape(-1)
    yield False, unflat(permuted, x)
    yield False, unflat(values * rng.choice((-1.0, 1.0), len(values)) * (1 + FACTOR * rng.uniform(-1, 1)), x)
    yield False, unflat(values + SHIFT * scales(x).max(initial=0.0) * rng.choice((-1.0, 1.0)), x)
