"""Upstream gradients, one an output: what autograd really hands to a backward."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch
from hypothesis import strategies as st

from gradfuzz.errors import StrategyError
from gradfuzz.strategies.dtype import is_differentiable, name_of, names_of
from gradfuzz.strategies.layout import Layout, plain
from gradfuzz.strategies.tensor import Recipe, recipe
from gradfuzz.strategies.value import draw_values

# Keeps the elements of grad_outputs apart from those of the inputs, which count from 0.
_SALT = 5

# What reaches a backward in the wild: a sum hands over an expanded scalar, a permutation a transposed tensor, a
# concatenation a slice with an offset; an indexing hands over zeros but for one element.
_KINDS = ("generic", "generic", "scalar", "scalar", "transposed", "offset", "zeros", "one_hot")
_RANK_OF_TRANSPOSED = 2


@lru_cache(maxsize=8)
def _kinds(rank: int, spare: bool) -> st.SearchStrategy[str]:
    fitting = tuple(kind for kind in _KINDS if rank >= _RANK_OF_TRANSPOSED or kind != "transposed")
    return st.sampled_from(fitting + (("undefined", "undefined") if spare else ()))


def _layout(kind: str, rank: int) -> Layout:
    base = plain(rank)
    match kind:
        case "scalar":
            return Layout(base.order, (0,) * rank)
        case "transposed":
            return Layout((*base.order[:-2], rank - 1, rank - 2), base.steps)
        case "offset":
            # One element before the slice, and rows that are longer than what is used of them.
            return Layout(base.order, (*base.steps[:-1], 2) if rank else (), offset=1)
    return base


def draw_grad_output(
    draw: st.DrawFn, size: tuple[int, ...], dtype: str, *, device: str = "cpu", salt: int = 0, spare: bool = False
) -> Recipe | None:
    """Draw the gradient of one output; None, an undefined one, only where it can be spared."""
    kind = draw(_kinds(min(len(size), _RANK_OF_TRANSPOSED), spare))
    layout = _layout(kind, len(size))
    # Drawn whatever the kind: fewer draws would make the other kinds simpler than the generic one.
    values = draw_values(draw, layout.owned(size), dtype=dtype, salt=_SALT + salt)
    if kind == "undefined":
        return None
    if kind == "zeros":
        values = np.zeros_like(values)
    elif kind == "one_hot" and values.size:
        hot = int(np.argmax(values.real))
        values = np.zeros_like(values)
        values.flat[hot] = 1
    return recipe(values, size, layout, dtype=dtype, device=device, requires_grad=False)


@st.composite
def _grad_outputs(draw: st.DrawFn, outputs: tuple[tuple[tuple[int, ...], str], ...]) -> tuple[Recipe | None, ...]:
    defined = draw(st.integers(0, len(outputs) - 1)) if len(outputs) > 1 else 0
    return tuple(
        draw_grad_output(draw, size, dtype, salt=i, spare=i != defined) for i, (size, dtype) in enumerate(outputs)
    )


def grad_outputs(
    outputs: Sequence[tuple[tuple[int, ...], torch.dtype | str]],
) -> st.SearchStrategy[tuple[Recipe | None, ...]]:
    """Recipes of one upstream gradient for each output's size and dtype, at least one of them defined.

    Shrinks to defined, contiguous, generic ones.
    """
    named = tuple(
        (tuple(size), name_of(dtype) if isinstance(dtype, torch.dtype) else names_of(dtype)[0])
        for size, dtype in outputs
    )
    if not named:
        raise StrategyError("outputs=() leaves no gradient; give the size and dtype of each output")
    for size, dtype in named:
        if not is_differentiable(dtype):
            raise StrategyError(f"an output of size {size} and dtype {dtype} has no gradient; leave it out")
    return _grad_outputs(named)
