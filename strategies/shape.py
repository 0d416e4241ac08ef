"""Shapes of tensors."""

from __future__ import annotations

import math
from functools import lru_cache

from hypothesis import strategies as st

from gradfuzz.strategies.common import Common, Conflict, shared
from gradfuzz.strategies.dim import ANONYMOUS, Dim, parse

# A tensor of a case holds at most about this many elements: 65 x 63, whose double backward takes under a millisecond.
MAX_ELEMENTS = 4096

# What kernels are blocked and vectorised by, and one more.
_BLOCKS = (8, 9, 16, 17, 32, 33, 64, 65)
# A person's example first; sides of 2 and 3 most often, since what goes wrong with several goes wrong with two. Four
# times the small ones let a block boundary into some 2 % of the sides, 4 to 6 % of the cases. An empty side comes
# last, so that it stays in a reproducer only when emptiness is the cause.
_OFTEN = 4
_SIDES = _OFTEN * 10 * (1,) + _OFTEN * 16 * (2,) + _OFTEN * 16 * (3,) + _OFTEN * 7 * (4,) + _OFTEN * 5 * (5,)
_EMPTY = _OFTEN * 4 * (0,)
# `*b` is a scalar first.
_RANKS = st.sampled_from((0,) * 5 + (1,) * 7 + (2,) * 5 + (3,) * 3)
# How often a side that may be broadcast is 1.
_FLAT = st.sampled_from((False, False, True))


@lru_cache(maxsize=256)
def _side(least: int, most: int, large: bool) -> st.SearchStrategy[int]:
    table = _SIDES + (_BLOCKS if large else ()) + _EMPTY
    return st.sampled_from(tuple(n for n in table if least <= n <= most) or (least,))


def _size(draw: st.DrawFn, common: Common, name: str, least: int, most: int) -> int:
    if name in common.sizes:
        return common.sizes[name]
    # One strategy for each few bounds: only those between the table's entries differ.
    most = min(most, _BLOCKS[-1]) if most >= _BLOCKS[0] else most
    large = common.large and not common.has_large
    n = draw(_side(max(least, common.least.get(name, 0)), max(most, 1), large))
    common.has_large |= n >= _BLOCKS[0]
    if name != ANONYMOUS:
        common.sizes[name] = n
    return n


def _sum(draw: st.DrawFn, common: Common, dim: Dim, most: int) -> int:
    if not dim.terms:
        return dim.constant
    alone = len(dim.terms) == 1 and dim.terms[0][0] > 0
    # The least that keeps c * n + constant from being negative.
    least = max(0, -(dim.constant // dim.terms[0][0])) if alone else 0
    total = dim.constant + sum(factor * _size(draw, common, name, least, most) for factor, name in dim.terms)
    if total < 0:
        factor, name = next((f, name) for f, name in dim.terms if f > 0)
        raise Conflict(name, common.sizes.get(name, 0) + -(total // factor))
    return total


def _group(draw: st.DrawFn, common: Common, dim: Dim, most: int) -> tuple[int, ...]:
    if dim.name in common.groups:
        return common.groups[dim.name]
    sizes: list[int] = []
    for _ in range(draw(_RANKS)):
        sizes.append(_size(draw, common, ANONYMOUS, 0, most))
        most //= max(sizes[-1], 1)
    if dim.name != ANONYMOUS:
        common.groups[dim.name] = tuple(sizes)
    return tuple(sizes)


def _flattened(draw: st.DrawFn, group: tuple[int, ...]) -> tuple[int, ...]:
    """Drop some leading sides and set some others to 1: what broadcasts to the whole group."""
    if not group:
        return group
    absent = draw(st.sampled_from((0, 0, *range(1, len(group) + 1))))
    flags = draw(st.integers(0, 2 ** len(group) - 1))
    return tuple(1 if flags >> i & 1 else n for i, n in enumerate(group))[absent:]


def draw_shape(draw: st.DrawFn, common: Common, dims: tuple[Dim, ...]) -> tuple[int, ...]:
    """Draw the sides of one tensor; names known to `common` keep their size."""
    sizes: list[int] = []
    room = MAX_ELEMENTS
    for dim in dims:
        if dim.variadic:
            group = _group(draw, common, dim, room)
            added = _flattened(draw, group) if dim.broadcast else group
        else:
            n = _sum(draw, common, dim, room)
            added = (1,) if dim.broadcast and draw(_FLAT) else (n,)
        sizes += added
        for n in added:
            room //= max(n, 1)
    if common.has_large and math.prod(sizes) > MAX_ELEMENTS:
        raise Conflict("")
    return tuple(sizes)


@st.composite
def _shapes(draw: st.DrawFn, dims: tuple[Dim, ...]) -> tuple[int, ...]:
    return shared(lambda common: draw_shape(draw, common, dims))


def shapes(dims: str) -> st.SearchStrategy[tuple[int, ...]]:
    """Tuples of side lengths in the notation of `gst.tensors`.

    Shrinks to the fewest dimensions and each side to 1, then 2, 3, ...; 0 comes last, so that an empty tensor is
    reported only when emptiness is the cause.
    """
    return _shapes(parse(dims))
