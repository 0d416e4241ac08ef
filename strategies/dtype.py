"""Dtypes of tensors, by their torch names."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import torch
from hypothesis import strategies as st
from hypothesis_torch.dtype import dtype_strategy

from gradfuzz.element import COMPLEX, FLOATS, dtype_of
from gradfuzz.errors import StrategyError

# The real floating dtypes, the one whose derivatives can be judged best first.
FLOATING = FLOATS

# float64 in 70 % of the cases: formulas are wrong in every dtype, kernels in their own.
_WEIGHTS = {"float64": 14, "float32": 3, "bfloat16": 2, "float16": 1}


def name_of(dtype: torch.dtype) -> str:
    """The name of a dtype without the module."""
    return str(dtype).removeprefix("torch.")


def names_of(dtype: torch.dtype | str | Iterable[torch.dtype | str]) -> tuple[str, ...]:
    """Give the names of one or several dtypes, checked."""
    several = (dtype,) if isinstance(dtype, (torch.dtype, str)) else tuple(dtype)
    names = tuple(name_of(d) if isinstance(d, torch.dtype) else str(d) for d in several)
    if not names:
        raise StrategyError("dtype=() leaves no dtype; name one, or None for the real floating dtypes")
    for name in names:
        try:
            dtype_of(name)
        except KeyError as error:
            raise StrategyError(str(error.args[0])) from None
    return names


def is_complex(name: str) -> bool:
    """Whether elements of the dtype have two parts."""
    return name in COMPLEX


def is_differentiable(name: str) -> bool:
    """Whether a tensor of the dtype can ask for a gradient."""
    return name in FLOATS or name in COMPLEX


@lru_cache(maxsize=256)
def _sampler(names: tuple[str, ...]) -> st.SearchStrategy[str]:
    weighted = [dtype_of(n) for n in names for _ in range(_WEIGHTS[n] if set(names) == set(FLOATING) else 1)]
    return dtype_strategy(weighted).map(name_of)


def dtypes(
    dtype: torch.dtype | str | Iterable[torch.dtype | str] | None = None,
) -> st.SearchStrategy[str]:
    """Names of dtypes; None stands for the real floating ones.

    Shrinks to the first that is named, float64 for None.
    """
    return _sampler(FLOATING if dtype is None else names_of(dtype))
