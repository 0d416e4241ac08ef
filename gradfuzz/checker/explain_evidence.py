"""Evidence for an explanation: one input's derivative beside what it should be, at several points and grad_outputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from gradfuzz.checker import numeric
from gradfuzz.checker.column import of_gradients, of_values
from gradfuzz.checker.direction import Mask, Rng, direction, generic, scales, unit
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised
from gradfuzz.checker.numeric import Estimate
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Array, Tensors, flat, segments, unflat

Indices = np.ndarray[Any, np.dtype[np.int64]]

# Elements of an input that are looked at if it has no more. Of a larger one so many are: suspects, ends and some
# between; each costs six calls or more at each of seven points.
MOST_ELEMENTS = 64
ELEMENTS_OF_MANY = 32
MOST_SUSPECTS = 8
# Both zero, beside the largest of the tensor: nothing is wrong there, and nothing is shown to be right.
BLANK = 1e-9
# Elements are moved by factors up to this far from 1, by a share of their scale; far enough that any other function
# of them would show, near enough to stay in most domains.
FACTOR = 0.2
SHIFT = 0.37
# Of a large input so many elements at either end are looked at: ends are where blocks are left over.
ENDS = 8
# Both sides of what is exact are sums: as far as the exact identities let them differ.
GRAPH_ROUNDINGS = 64


# A formula that is to give every wrong number must give eight digits of it, or what the error bars leave of them:
# chance would have to hit a hundredth of the gap even where the fault is one part in a million.
FIT = 1e-8


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
        jacobian: By element looked at, a row of derivatives of every output; of a first derivative alone.
    """

    here: bool
    x: Tensors
    v: Tensors
    y: Tensors
    slot: int
    indices: Indices
    got: Array
    estimate: Estimate
    u: Tensors | None = None
    jacobian: Array = field(default_factory=lambda: np.zeros((0, 0)))

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

    def near(self, other: Array, *, fit: float = FIT) -> Mask:
        """By element, whether `other` is got, as far as the error of want allows to say."""
        with np.errstate(all="ignore"):
            allowed = numeric.AGREE_BARS * self.estimate.error + fit * np.maximum(self.sizes, np.abs(other))
            return np.asarray(np.abs(self.got - other) <= allowed)


def first_order(run: Run, x: Tensors, slot: int, suspects: list[int], rng: Rng) -> list[Evidence]:
    """Gather the gradient of one input at x and at points made from it; those the function refuses are left out."""
    found: list[Evidence] = []
    for here, there in _points(run, x, rng):
        with suppress(ForwardRaised, BackwardRaised):
            found += _gradients(run, there, slot, suspects, rng, here=here)
    return found


def _gradients(run: Run, x: Tensors, slot: int, suspects: list[int], rng: Rng, *, here: bool) -> Iterator[Evidence]:
    """Give evidence at one point: two grad_outputs, for their Jacobian is the same."""
    outputs = run.context.subject.value(x)
    part = segments(x)[slot]
    indices = _chosen(part, suspects)
    v = _weights(run, outputs, rng)
    values, errors = _jacobian(run, x, v, part, indices)
    for weights in (v, _weights(run, outputs, rng)):
        got = flat(run.context.subject.gradient(x, weights).gradients)[part][indices]
        estimate = _weighted(values, errors, weights)
        yield Evidence(here, x, weights, outputs, slot, indices, got, estimate, jacobian=values)


def _jacobian(run: Run, x: Tensors, v: Tensors, part: slice, indices: Indices) -> tuple[Array, Array]:
    """Give derivatives of every output by some elements of x, a row each, and their error bars."""
    first = run.context.subject.gradient(x, v)
    columns = [of_values(run.context, x, v, first, part.start + int(i)) for i in indices]
    values = np.array([estimate.value for estimate, _ in columns]).reshape(len(indices), -1)
    errors = np.array([np.where(kinked, np.inf, e.error) for e, kinked in columns]).reshape(len(indices), -1)
    return values, errors


def _weighted(values: Array, errors: Array, v: Tensors) -> Estimate:
    """Give the gradient that a Jacobian makes of grad_outputs; its error bars are bounds, so they add up."""
    w = flat(v)
    kept = w != 0
    return Estimate(values[:, kept] @ w[kept], errors[:, kept] @ np.abs(w[kept]))


def moved(run: Run, e: Evidence, k: int, value: torch.Tensor) -> Evidence | None:
    """Give what `e` is where another input, the k-th, has another value; None where it cannot be had."""
    x = tuple(value if i == k else t for i, t in enumerate(e.x))
    return _again(run, replace(e, x=x), e.slot)


def of_other(run: Run, e: Evidence, other: int) -> Evidence | None:
    """Give what `e` is of one input for another of its shape; None where it cannot be had."""
    return _again(run, e, other)


def _again(run: Run, e: Evidence, slot: int) -> Evidence | None:
    part = segments(e.x)[slot]
    try:
        values, errors = _jacobian(run, e.x, e.v, part, e.indices)
        got = flat(run.context.subject.gradient(e.x, e.v).gradients)[part][e.indices]
    except (ForwardRaised, BackwardRaised):
        return None
    return Evidence(e.here, e.x, e.v, e.y, slot, e.indices, got, _weighted(values, errors, e.v), jacobian=values)


def carried(run: Run, x: Tensors, slot: int, rng: Rng) -> list[Evidence]:
    """Gather what the graph of one input's gradient has of it: G is linear in v, so d<G_i, 1>/dv times v is G_i.

    No difference is taken: want is the gradient itself.
    """
    found: list[Evidence] = []
    for here, there in _points(run, x, rng):
        with suppress(ForwardRaised, BackwardRaised):
            outputs = run.context.subject.value(there)
            v = _weights(run, outputs, rng)
            part = segments(there)[slot]
            indices = _chosen(part, [])
            want = flat(run.context.subject.gradient(there, v).gradients)[part][indices]
            got = [
                flat(run.context.subject.second(there, v, unit(there, part.start + int(i))).jacobian_u) @ flat(v)
                for i in indices
            ]
            error = np.full(len(indices), GRAPH_ROUNDINGS * run.context.eps * np.abs(want).max(initial=0.0))
            found.append(Evidence(here, there, v, outputs, slot, indices, np.array(got), Estimate(want, error)))
    return found


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


def _chosen(part: slice, suspects: list[int]) -> Indices:
    """Choose elements of an input: all of a small one, else suspects and others spread evenly."""
    count = part.stop - part.start
    if count <= MOST_ELEMENTS:
        return np.arange(count)
    mine = [k - part.start for k in suspects if part.start <= k < part.stop][:MOST_SUSPECTS]
    mine += [*range(ENDS), *range(count - ENDS, count)]
    spread = np.linspace(0, count - 1, ELEMENTS_OF_MANY - len(mine)).astype(np.int64)
    return np.unique(np.concatenate([np.array(mine, dtype=np.int64), spread]))


def _weights(run: Run, outputs: Tensors, rng: Rng) -> Tensors:
    """Draw grad_outputs; real ones of complex outputs, for with those a missing conjugate is plain to see."""
    allowed = run.allowed_outputs
    v = generic(rng, outputs, allowed if allowed is not None and allowed.size == flat(outputs).size else None)
    return tuple((g.real + 0 * g) if g.dtype.is_complex else g for g in v)


def _points(run: Run, x: Tensors, rng: Rng) -> Iterator[tuple[bool, Tensors]]:
    """Give x itself, and points that keep or break what may be special about it.

    Scaled, equal elements by equal factors: signs, zeros, ties, symmetry and places stay. Drawn towards zero likewise:
    a condition on the sign holds there too, another threshold does not. Permuted within each
    tensor: what hangs on a value moves, what hangs on a place stays. With other signs. Shifted by a constant: ties
    stay, zeros go.
    """
    yield True, x
    values = flat(x)
    finite = np.where(np.isfinite(values), values, 0.0)
    _, same = np.unique(np.abs(finite), return_inverse=True)
    for _ in range(2):
        yield False, unflat(values * (1 + FACTOR * rng.uniform(-1, 1, len(values))[same]), x)
    yield False, unflat(values * rng.uniform(0, 1, len(values))[same] ** 2, x)
    permuted = values.copy()
    for part, t in zip(segments(x), x, strict=True):
        pairs = permuted[part].reshape(-1, 2 if t.dtype.is_complex else 1)
        permuted[part] = pairs[rng.permutation(len(pairs))].reshape(-1)
    yield False, unflat(permuted, x)
    yield False, unflat(values * rng.choice((-1.0, 1.0), len(values)) * (1 + FACTOR * rng.uniform(-1, 1)), x)
    yield False, unflat(values + SHIFT * scales(x).max(initial=0.0) * rng.choice((-1.0, 1.0)), x)
