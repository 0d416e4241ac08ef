"""Numbers of a dtype as JSON holds them: short decimals, and strings for what JSON lacks."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from gradfuzz.element import COMPLEX, FLOATS, INTEGERS, dtype_of

if TYPE_CHECKING:
    from gradfuzz.case import Element, Real

DTYPES = (*FLOATS, *COMPLEX, *INTEGERS)

# 17 significant decimal digits tell any two float64 apart, and so any two of a narrower dtype.
MOST_DIGITS = 17


@dataclass(frozen=True, slots=True)
class Binary:
    """A binary floating-point format.

    Attributes:
        precision: Bits of the significand, the hidden one included.
        lowest: Exponent of two of the smallest subnormal number.
        largest: The largest finite number.
        bits: The width of one number.
    """

    precision: int
    lowest: int
    largest: float
    bits: int

    def rounded(self, value: float) -> float:
        """Round a number to the nearest of the format, ties to even; an infinity where it overflows."""
        if value == 0 or math.isinf(value):
            return value
        exponent = max(math.frexp(value)[1] - self.precision, self.lowest)
        near = math.ldexp(round(math.ldexp(value, -exponent)), exponent)
        return math.copysign(near if abs(near) <= self.largest else math.inf, value)

    def shortest(self, value: float) -> float:
        """Give the decimal of fewest digits, nearest to `value`, that `rounded` brings back to it."""
        for digits in range(1, MOST_DIGITS):
            short = float(f"{value:.{digits}g}")
            if self.rounded(short) == value:
                return short
        return value

    def is_nan(self, pattern: int) -> bool:
        """Whether these bits, read as a number of the format, are a nan."""
        stored = self.precision - 1
        exponent_bits = self.bits - self.precision
        all_ones = (1 << exponent_bits) - 1
        return (pattern >> stored) & all_ones == all_ones and bool(pattern & ((1 << stored) - 1))


@cache
def binary_of(dtype: str) -> Binary:
    """Give the format of a real floating dtype."""
    info = torch.finfo(dtype_of(dtype))
    epsilon, normal = math.frexp(info.eps)[1] - 1, math.frexp(info.smallest_normal)[1] - 1
    return Binary(precision=1 - epsilon, lowest=normal + epsilon, largest=info.max, bits=info.bits)


@cache
def limits_of(dtype: str) -> tuple[int, int]:
    """Give the smallest and the largest number of an integer dtype."""
    info = torch.iinfo(dtype_of(dtype))
    return info.min, info.max


def hex_of(pattern: int, form: Binary) -> str:
    """Write the bits of a nan at the width of its format."""
    return f"nan:{pattern:0{form.bits // 4}x}"


def write_real(value: Real, dtype: str) -> Real:
    """Give a real element as JSON shall hold it; equal elements of a dtype have one form."""
    if dtype == "bool":
        return bool(value)
    if dtype not in FLOATS:
        return int(value)
    form = binary_of(dtype)
    if isinstance(value, str):
        if value in ("inf", "-inf"):
            return value
        return hex_of(int(value.removeprefix("nan:"), 16), form)
    number = float(value)
    if math.isnan(number):  # only its being a nan is known: the quiet nan without a payload
        return hex_of((1 << form.bits - 1) - (1 << form.precision - 2), form)
    number = number if math.isinf(number) else form.rounded(number)
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    return form.shortest(number)


def write_element(element: Element, dtype: str) -> object:
    """Give an element as JSON shall hold it: a number, a string, or ``[re, im]``."""
    if dtype in COMPLEX:
        parts = element if isinstance(element, tuple) else (element, 0.0)
        return [write_real(part, COMPLEX[dtype]) for part in parts]
    if isinstance(element, tuple):
        raise ValueError(f"element {element!r} is complex; its storage is {dtype}")
    return write_real(element, dtype)


def read_real(value: object, dtype: str) -> Real:
    """Give the real element that JSON holds, exact in its dtype; a ValueError says what is allowed."""
    if dtype == "bool":
        if isinstance(value, bool):
            return value
        raise ValueError("an element of a bool storage is true or false")
    if dtype not in FLOATS:
        low, high = limits_of(dtype)
        if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
            return value
        raise ValueError(f"an element of {dtype} is an integer from {low} to {high}")
    form = binary_of(dtype)
    if isinstance(value, str):
        return _read_special(value, dtype, form)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f'an element of {dtype} is a number, "inf", "-inf" or "nan:<{form.bits // 4} hex digits>"')
    try:
        number = form.rounded(float(value))
    except (OverflowError, ValueError):
        number = math.inf
    if math.isinf(number):
        raise ValueError(f'beyond the largest {dtype}, {form.largest:.6g}; write "inf" or "-inf"')
    return number


def _read_special(text: str, dtype: str, form: Binary) -> str:
    if text in ("inf", "-inf"):
        return text
    digits = form.bits // 4
    if re.fullmatch(rf"nan:[0-9a-f]{{{digits}}}", text) and form.is_nan(int(text[4:], 16)):
        return text
    raise ValueError(
        f'a string element of {dtype} is "inf", "-inf" or "nan:" and the {digits} lower-case hex digits of a nan'
    )


def read_element(value: object, dtype: str) -> Element:
    """Give the element that JSON holds, exact in its dtype; a ValueError says what is allowed."""
    if dtype not in COMPLEX:
        return read_real(value, dtype)
    if isinstance(value, list) and len(value) == len(("re", "im")):
        return read_real(value[0], COMPLEX[dtype]), read_real(value[1], COMPLEX[dtype])
    raise ValueError(f"an element of {dtype} is [re, im]")
