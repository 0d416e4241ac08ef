"""Tensors with a structure that generic elements never have: zeros, identity, singular matrices, sorted rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

Array = np.ndarray[Any, np.dtype[Any]]


def _zeros(x: Array) -> Array:
    return np.zeros_like(x)


def _constant(x: Array) -> Array:
    return np.full_like(x, x.flat[0])


def _one_hot(x: Array) -> Array:
    result = np.zeros_like(x)
    result.flat[int(np.argmax(x))] = 1
    return result


def _ascending(x: Array) -> Array:
    return np.sort(x, axis=-1)


def _identity(x: Array) -> Array:
    return np.broadcast_to(np.eye(*x.shape[-2:], dtype=x.dtype), x.shape).copy()


def _equal_rows(x: Array) -> Array:
    return np.broadcast_to(x[..., :1, :], x.shape).copy()


def _twin_rows(x: Array) -> Array:
    """Of rank n - 1: the last row repeats the first."""
    result = x.copy()
    result[..., -1, :] = x[..., 0, :]
    return result


def _zero_row(x: Array) -> Array:
    result = x.copy()
    result[..., 0, :] = 0
    return result


_OF_ANY = (_zeros, _zeros, _zeros, _constant, _one_hot)
_OF_VECTORS = (_ascending,)
_OF_MATRICES = (_identity, _twin_rows, _equal_rows, _zero_row)


@lru_cache(maxsize=4)
def _kinds(rank: int) -> st.SearchStrategy[Callable[[Array], Array]]:
    return st.sampled_from(_OF_ANY + (_OF_VECTORS if rank else ()) + (_OF_MATRICES if rank > 1 else ()))


def structures(rank: int) -> st.SearchStrategy[Callable[[Array], Array]]:
    """Functions that impose a structure on the elements of a tensor. Shrinks to zeros."""
    return _kinds(min(rank, 2))
