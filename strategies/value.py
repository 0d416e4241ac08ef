"""Elements of tensors: what values they take, mode by mode."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from gradfuzz.case import Element
from gradfuzz.element import COMPLEX, dtype_of
from gradfuzz.errors import StrategyError
from gradfuzz.strategies.dtype import is_complex, name_of, names_of
from gradfuzz.strategies.structure import structures

Array = np.ndarray[Any, np.dtype[Any]]
Bounds = tuple[float, float]

# Half of the cases are generic: only there does every oracle have its full power.
MODES = ("generic",) * 16 + ("ties",) * 5 + ("structured",) * 4 + ("wide",) * 4 + ("special",) * 3

# Up to here every element is drawn, hence shrinks; of more, a few are drawn and a seed fills the rest.
DRAWN = 32
_DRAWN_OF_MANY = 8

# The generic lattice is (k + odd/16) / 8: off every multiple of 1/8, where kinks lie. The odd number differs between
# neighbours, so that ties need an equal k and an equal place. k = 8 comes first: the simplest element is near 1.
_STEP = 1 / 8
_K = range(-32, 32)
_SIMPLEST_K = 8
_REACH = -_K[0] * _STEP
# How many odd numbers there are: (16 k + odd) / 128 needs 10 bits of a significand, which bfloat16 lacks; there
# (4 k + odd) / 32 needs 8.
_ODDS = 8
_ODDS_OF_DTYPE = {"bfloat16": 2}

# Integers without bounds: small, since they are exponents, counts and the like.
_INTEGER_BOUNDS = (-5.0, 5.0)
_UNSIGNED_BOUNDS = {"uint8": (0.0, 5.0), "bool": (0.0, 1.0)}
# A pool has at most this many entries: one drawn byte chooses one of them.
_POOL = 256

_TIES = (0.0,) * 6 + (1.0,) * 4 + (-1.0,) * 2 + (2.0,) * 2 + (-2.0, 0.5, 3.0, -3.0)

# Significands of 8 bits, and exponents from "past where exp, tanh, erf saturate" over "a gap beyond 709, where
# exp overflows" to many decades; the dtype's range cuts them.
_SIGNIFICANDS = (33 / 32, -47 / 32, 87 / 32, -113 / 32)
_EXPONENTS = (4, 4, 3, 5, 6, 9, 9, 10, -4, -8, -12, 14, 20, -20, -30)
# One scale for a whole tensor.
_SCALES = (4, -4, 7, -7, 10, -10, 20, -20)


@dataclass(frozen=True, slots=True)
class Pool:
    """The values an element may take, simplest first.

    Attributes:
        values: The values themselves.
        nudge: The cell of the lattice; each element moves into it by its place. 0 leaves the values as they are.
        odds: How many places in the cell there are.
    """

    values: Array
    nudge: float = 0.0
    odds: int = 1

    def take(self, codes: Array, salt: int) -> Array:
        """Turn bytes into elements; `salt` keeps the tensors of a case apart."""
        # Modulo, not a share of the range: a byte less is the entry before, which is how a shrink goes.
        chosen: Array = self.values[codes % len(self.values)]
        if not self.nudge:
            return chosen
        place = (np.arange(len(codes)) + salt) % self.odds
        moved: Array = chosen + self.nudge * (2 * place + 1) / (2 * self.odds)
        return moved


def rounded(values: Array, dtype: str) -> Array:
    """Round to what the dtype can hold, as float64."""
    if dtype in ("float64", "complex128"):
        return values
    kind = dtype_of(COMPLEX.get(dtype, dtype))
    result: Array = torch.tensor(values).to(kind).to(torch.float64).numpy()
    return result


def largest(dtype: str) -> float:
    """The largest finite number of a floating dtype."""
    return float(torch.finfo(dtype_of(COMPLEX.get(dtype, dtype))).max)


@lru_cache(maxsize=256)
def ends(dtype: str, bounds: Bounds) -> Bounds:
    """The outermost numbers of the dtype that lie within the bounds."""
    low, high = bounds
    if not dtype_of(dtype).is_floating_point:
        least, most = (
            (0, 1) if dtype == "bool" else (torch.iinfo(dtype_of(dtype)).min, torch.iinfo(dtype_of(dtype)).max)
        )
        inner = (float(math.ceil(max(low, least))), float(math.floor(min(high, most))))
    else:
        top, eps = largest(dtype), torch.finfo(dtype_of(dtype)).eps
        tiny = torch.finfo(dtype_of(dtype)).smallest_normal
        low, high = max(low, -top), min(high, top)
        a, b = (float(rounded(np.array([x]), dtype)[0]) for x in (low, high))
        if a < low:
            a = float(rounded(np.array([a + max(abs(a) * eps, tiny)]), dtype)[0])
        if b > high:
            b = float(rounded(np.array([b - max(abs(b) * eps, tiny)]), dtype)[0])
        inner = (a, b)
    if not inner[0] <= inner[1]:
        raise StrategyError(f"bounds={bounds} hold no {dtype}; widen them or choose another dtype")
    return inner


def _scattered(count: int) -> list[int]:
    """Order 0 .. count-1 so that any first few are spread; the first stays first."""
    if count <= _POOL:
        return list(range(count))
    return [i * count // _POOL for i in range(_POOL)]


def _near(simplest: int, low: int, high: int) -> Array:
    """The integers of a range, nearest to the simplest first, thinned to a pool."""
    step = max(1, -(-(high - low + 1) // (4 * _POOL)))
    every = sorted(range(low, high + 1, step), key=lambda k: (abs(k - simplest), -k))
    return np.array([every[i] for i in _scattered(len(every))], dtype=np.float64)


def _generic(dtype: str, bounds: Bounds | None) -> Pool:
    odds = _ODDS_OF_DTYPE.get(dtype, _ODDS)
    if bounds is None:
        return Pool(_near(_SIMPLEST_K, _K[0], _K[-1]) * _STEP, _STEP, odds)
    low, high = ends(dtype, bounds)
    if not dtype_of(dtype).is_floating_point:
        return Pool(_near(min(max(0, int(low)), int(high)), int(low), int(high)))
    # An unbounded side ends as far out as the lattice does without bounds.
    if bounds[0] == -math.inf:
        low = min(-_REACH, high - _REACH)
    if bounds[1] == math.inf:
        high = max(_REACH, low + _REACH)
    if high == low:
        return Pool(np.array([low]))
    step = _STEP
    while (high - low) / step < 2 * odds:  # enough cells for a dozen different elements
        step /= 2
    while (high - low) / step > 2**20:  # few enough to list them thinned
        step *= 2
    first, last = math.ceil(low / step), math.floor(high / step) - 1
    if last < first:
        return Pool(np.array([low, high]))
    simplest = min(max(round(1 / step), first), last)
    return Pool(_near(simplest, first, last) * step, step, odds)


def _special(dtype: str) -> tuple[float, ...]:
    info = torch.finfo(dtype_of(dtype))
    # Beyond the fourth root of the range a second derivative overflows rightly.
    huge = 2.0 ** (math.floor(math.log2(info.max)) // 4)
    tiny = 2.0 ** -(math.floor(-math.log2(info.smallest_normal)) // 4)
    subnormal = float(info.smallest_normal) / 2
    finite = (0.0, 0.0, 0.0, 0.0, -0.0, -0.0, huge, huge, -huge, tiny, tiny, -tiny, subnormal)
    return (*finite, math.inf, -math.inf, math.nan)


def _wide(dtype: str) -> tuple[float, ...]:
    # A square of the largest stays finite in the dtype, but for float16, whose range ends at a gap of hundreds.
    reach = max(math.sqrt(largest(dtype)), 2.0**11)
    table = [m * 2.0**e for e in _EXPONENTS for m in _SIGNIFICANDS]
    return tuple(x for x in table if abs(x) < reach and abs(x) > 1 / reach)


@lru_cache(maxsize=256)
def pool(mode: str, dtype: str, bounds: Bounds | None = None) -> Pool:
    """The pool of a mode. With bounds every entry lies within them, and both ends are entries outside of generic."""
    dtype = COMPLEX.get(dtype, dtype)
    if not dtype_of(dtype).is_floating_point:
        bounds = bounds or _UNSIGNED_BOUNDS.get(dtype, _INTEGER_BOUNDS)
    generic = _generic(dtype, bounds)
    if mode == "generic":
        return generic
    if not dtype_of(dtype).is_floating_point:
        low, high = ends(dtype, bounds or _INTEGER_BOUNDS)
        return Pool(np.array([generic.values[0], low, high, *generic.values[1:3]]))
    table = _TIES if mode == "ties" else _special(dtype) if mode == "special" else _wide(dtype)
    if bounds is None:
        return Pool(np.array(table))
    low, high = ends(dtype, bounds)
    within = [x for x in table if low <= x <= high]
    return Pool(np.array([*within, low, high]))


@lru_cache(maxsize=DRAWN + 1)
def _bytes(count: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=count, max_size=count)


_seed = st.integers(0, 2**32 - 1)


def _codes(draw: st.DrawFn, count: int) -> Array:
    """Draw a byte an element; all zeros is the simplest."""
    if count <= DRAWN:
        return np.frombuffer(draw(_bytes(count)), dtype=np.uint8).astype(np.intp)
    drawn = np.frombuffer(draw(_bytes(_DRAWN_OF_MANY)), dtype=np.uint8)
    rest = count - _DRAWN_OF_MANY
    seed = draw(_seed)
    # Seed 0 stands for the simplest filling, so that a large reproducer is readable too.
    filling = np.random.default_rng(seed).integers(0, _POOL, rest) if seed else np.zeros(rest, dtype=np.intp)
    return np.concatenate([drawn, filling]).astype(np.intp)


# To how much of a tensor a mode applies.
_SPREADS = {
    "ties": ("one", "all", "all", "all"),
    "special": ("one", "one", "all"),
    "wide": ("one", "all", "all", "scaled"),
}


def _spread_out(draw: st.DrawFn, count: int, mode: str, dtype: str, bounds: Bounds | None, salt: int) -> Array:
    values = pool(mode, dtype, bounds).values
    cells = max(count, 1) * len(values)
    # One draw for the spread, the element and its value, so that a single zero counts as simpler than all zeros.
    kind, choice = divmod(draw(st.integers(0, len(_SPREADS[mode]) * cells - 1)), cells)
    spread = _SPREADS[mode][kind]
    if spread == "all":
        return pool(mode, dtype, bounds).take(_codes(draw, count), salt)
    elements = pool("generic", dtype, bounds).take(_codes(draw, count), salt)
    if spread == "scaled":
        reach = math.log2(largest(dtype)) / 2
        scales = [e for e in _SCALES if abs(e) < reach]
        return elements * 2.0 ** scales[choice % len(scales)]
    if count:
        elements[choice % count] = values[choice // count]
    return elements


def draw_values(
    draw: st.DrawFn,
    size: tuple[int, ...],
    *,
    dtype: str,
    bounds: Bounds | None = None,
    mode: str = "generic",
    salt: int = 0,
) -> Array:
    """Draw the elements of one tensor as an array of its shape, each exactly representable in the dtype."""
    if is_complex(dtype):
        both = np.empty(size, dtype=np.complex128)  # filled by parts: 1j * inf would make a nan
        part = COMPLEX[dtype]
        both.real = draw_values(draw, size, dtype=part, mode=mode, salt=salt)
        both.imag = draw_values(draw, size, dtype=part, mode=mode, salt=salt + 3)
        return both
    count = math.prod(size)
    integer = not dtype_of(dtype).is_floating_point
    if mode == "structured":
        impose = draw(structures(len(size)))
        elements = pool("generic", dtype, bounds).take(_codes(draw, count), salt)
        elements = impose(elements.reshape(size)) if count else elements
    elif mode == "generic" or integer:
        elements = pool(mode, dtype, bounds).take(_codes(draw, count), salt)
    else:
        elements = _spread_out(draw, count, mode, dtype, bounds, salt)
    if bounds is not None and not integer:
        elements = rounded(elements, dtype)
    if bounds is not None or (integer and mode == "structured"):
        elements = np.clip(elements, *ends(dtype, bounds or _UNSIGNED_BOUNDS.get(dtype, _INTEGER_BOUNDS)))
    return elements.reshape(size)


# The bits of the quiet nan that arithmetic gives, by dtype.
_NAN = {
    "float64": "nan:7ff8000000000000",
    "float32": "nan:7fc00000",
    "bfloat16": "nan:7fc0",
    "float16": "nan:7e00",
}


def _real(values: Array, dtype: str) -> tuple[Any, ...]:
    if dtype == "bool":
        return tuple(bool(x) for x in values.tolist())
    if not dtype_of(dtype).is_floating_point:
        return tuple(int(x) for x in values.tolist())
    listed = values.tolist()
    if all(map(math.isfinite, listed)):
        return tuple(listed)
    return tuple(
        x if math.isfinite(x) else _NAN[dtype] if math.isnan(x) else "inf" if x > 0 else "-inf" for x in listed
    )


def frozen(values: Array, dtype: str) -> tuple[Element, ...]:
    """Give a one-dimensional array as the plain elements of a storage."""
    if is_complex(dtype):
        part = COMPLEX[dtype]
        return tuple(zip(_real(values.real, part), _real(values.imag, part), strict=True))
    return _real(values, dtype)


@st.composite
def _values(draw: st.DrawFn, count: int, dtype: str, bounds: Bounds | None, mode: str | None) -> tuple[Element, ...]:
    chosen = draw(st.sampled_from(MODES)) if mode is None else mode
    return frozen(draw_values(draw, (count,), dtype=dtype, bounds=bounds, mode=chosen), dtype)


def checked_bounds(bounds: Bounds | None) -> Bounds | None:
    """Refuse bounds that are no pair in order."""
    if bounds is None:
        return None
    try:
        low, high = (float(x) for x in bounds)
    except (TypeError, ValueError):
        raise StrategyError(f"bounds={bounds!r} is no pair of numbers; write (low, high)") from None
    if not low <= high:
        raise StrategyError(f"bounds={bounds!r} hold nothing; write (low, high) with low <= high")
    return low, high


def values(
    count: int,
    *,
    dtype: torch.dtype | str = "float64",
    bounds: Bounds | None = None,
    mode: str | None = None,
) -> st.SearchStrategy[tuple[Element, ...]]:
    """Tuples of `count` elements of a dtype, as plain data; `mode` None draws one.

    Shrinks to generic elements near 1; a zero, a tie or an infinity stays only where it matters.
    """
    if mode is not None and mode not in MODES:
        raise StrategyError(f"mode={mode!r} is unknown; known are {', '.join(dict.fromkeys(MODES))}")
    name = name_of(dtype) if isinstance(dtype, torch.dtype) else names_of(dtype)[0]
    return _values(count, name, checked_bounds(bounds), mode)
