"""Layouts of tensors: how elements lie in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from gradfuzz.case import contiguous_stride
from gradfuzz.errors import StrategyError

Array = np.ndarray[Any, np.dtype[Any]]

# Each kind with its weight, the simplest first; overlapping memory and lazy bits are rare in the wild.
KINDS = {
    "contiguous": 24,
    "transposed": 4,
    "offset": 2,
    "sliced": 2,
    "expanded": 3,
    "permuted": 2,
    "channels_last": 4,
    "overlapping": 1,
    "negated": 1,
    "conjugated": 4,
}
# Memory that no element of the tensor owns holds this: a value unlike any drawn one, exact in every dtype.
FILLER = 13.0

_CHANNELS_LAST_RANK = 4
_LEADS = st.integers(1, 3)


@dataclass(frozen=True, slots=True)
class Layout:
    """How the elements of a tensor of some rank lie in memory.

    Attributes:
        order: The dimensions from the outermost in memory to the innermost.
        steps: Every how many elements a dimension uses, by dimension; 0 for an expanded one.
        offset: Where the first element lies.
        overlapping: Whether the last two dimensions walk the same elements (``x[i, j] = memory[i + j]``).
        neg: Whether the memory holds the negatives, under a lazy bit.
        conj: Whether the memory holds the conjugates, under a lazy bit.
    """

    order: tuple[int, ...]
    steps: tuple[int, ...]
    offset: int = 0
    overlapping: bool = False
    neg: bool = False
    conj: bool = False

    def owned(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """The shape of the elements that are really different: an expanded side counts once."""
        return tuple(min(n, 1) if step == 0 else n for n, step in zip(size, self.steps, strict=True))

    def stride(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """The strides of a tensor of this size."""
        strides = [0] * len(size)
        reach = 1
        for d in reversed(self.order):
            if self.steps[d]:
                strides[d] = reach * self.steps[d]
                reach = strides[d] * max(size[d], 1)
        if self.overlapping:
            strides[-2] = strides[-1]
        return tuple(strides)

    def place(self, values: Array, size: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
        """Write elements of the shape `owned` into fresh memory; give it with the strides."""
        if self == plain(len(size)):
            return values.reshape(-1), contiguous_stride(size)
        strides = self.stride(size)
        reach = 1 + sum((n - 1) * s for n, s in zip(size, strides, strict=True)) if math.prod(size) else 0
        memory = np.full(self.offset + reach, FILLER, dtype=values.dtype)
        if reach:
            width = memory.itemsize
            view: Array = np.ndarray(size, memory.dtype, memory, self.offset * width, tuple(s * width for s in strides))
            view[...] = values  # where elements share memory they are equal, or the last one written counts
        memory = -memory if self.neg else memory
        return memory.conj() if self.conj else memory, strides


@cache
def plain(rank: int) -> Layout:
    """Row-major from the start of the memory."""
    return Layout(tuple(range(rank)), (1,) * rank)


def checked_kinds(layout: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """Refuse names that are no layout."""
    if layout is None:
        return None
    names = (layout,) if isinstance(layout, str) else tuple(layout)
    for name in names or ("",):
        if name not in KINDS:
            raise StrategyError(f"layout={name!r} is unknown; known are {', '.join(KINDS)}")
    return names


def _fits(kind: str, rank: int, event: int, real: bool, signed: bool) -> bool:
    """Whether a tensor of this rank can have the layout; the last `event` dimensions keep their elements apart."""
    match kind:
        case "transposed":
            return rank >= 2
        case "sliced":
            return rank >= 1
        case "expanded":
            return rank > event
        case "permuted":
            return rank >= 3
        case "channels_last":
            return rank == _CHANNELS_LAST_RANK
        case "overlapping":
            return rank >= 2 and not event
        case "negated":
            return signed
        case "conjugated":
            return not real
    return True


@lru_cache(maxsize=256)
def _kinds(names: tuple[str, ...] | None, rank: int, event: int, real: bool, signed: bool) -> st.SearchStrategy[str]:
    fitting = [kind for kind in names or KINDS if _fits(kind, rank, event, real, signed)]
    return st.sampled_from([kind for kind in fitting for _ in range(KINDS[kind])] or ["contiguous"])


@cache
def _dimension(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


@cache
def _permutation(rank: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.permutations(range(rank)).map(tuple)


def draw_layout(
    draw: st.DrawFn,
    rank: int,
    *,
    names: tuple[str, ...] | None = None,
    event: int = 0,
    real: bool = True,
    signed: bool = True,
) -> Layout:
    """Draw how a tensor lies in memory; a kind that the rank does not allow is not drawn."""
    kind = draw(_kinds(names, rank, event, real, signed))
    base = plain(rank)
    match kind:
        case "transposed":
            return Layout((*base.order[:-2], rank - 1, rank - 2), base.steps)
        case "permuted":
            return Layout(draw(_permutation(rank)), base.steps)
        case "channels_last":
            return Layout((0, 2, 3, 1), base.steps)
        case "sliced" | "expanded":
            at = draw(_dimension(rank if kind == "sliced" else rank - event))
            step = 2 if kind == "sliced" else 0
            return Layout(base.order, tuple(step if d == at else 1 for d in range(rank)))
        case "offset":
            return Layout(base.order, base.steps, offset=draw(_LEADS))
        case "overlapping":
            return Layout(base.order, base.steps, overlapping=True)
        case "negated":
            return Layout(base.order, base.steps, neg=True)
        case "conjugated":
            return Layout(base.order, base.steps, conj=True)
    return base


@st.composite
def _layouts(draw: st.DrawFn, rank: int, names: tuple[str, ...] | None) -> Layout:
    return draw_layout(draw, rank, names=names)


def layouts(rank: int, layout: str | Iterable[str] | None = None) -> st.SearchStrategy[Layout]:
    """Layouts of tensors with `rank` dimensions. Shrinks to row-major memory."""
    return _layouts(rank, checked_kinds(layout))
