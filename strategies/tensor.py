"""Tensors as recipes: elements, memory layout and flags, from which a case is put together."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from hypothesis import strategies as st

from gradfuzz.case import StorageSpec, TensorSpec
from gradfuzz.errors import StrategyError
from gradfuzz.strategies import constraint as constrained
from gradfuzz.strategies.common import Common, Conflict, shared
from gradfuzz.strategies.dim import Dim, parse
from gradfuzz.strategies.dtype import is_complex, is_differentiable, names_of
from gradfuzz.strategies.layout import Layout, checked_kinds, draw_layout
from gradfuzz.strategies.shape import draw_shape
from gradfuzz.strategies.value import Array, Bounds, checked_bounds, draw_values, frozen, rounded

if TYPE_CHECKING:
    from hypothesis.internal.conjecture.data import ConjectureData

# A matrix constraint takes exponentials of the diagonal: a quarter keeps generic conditions below a few thousand,
# and the farthest ones within what float64 can factorise.
_MATRIX_SCALE = 1 / 4
# Beyond this exp and sigmoid reach the edge of float32's precision, and the inverse of the transform is lost.
_FARTHEST = 16.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """One tensor as plain data, before it is part of a case.

    Attributes:
        storage: Its memory.
        view: The view of that memory; its index of a storage is 0.
        requires_grad: Whether a gradient is asked for; None leaves it to the case.
        constraint: The label of the constraint its elements satisfy.
    """

    storage: StorageSpec
    view: TensorSpec
    requires_grad: bool | None = None
    constraint: str = "Real()"

    @property
    def differentiable(self) -> bool:
        """Whether its dtype can carry a gradient."""
        return is_differentiable(self.storage.dtype)

    def build(self) -> torch.Tensor:
        """Make a fresh tensor; two calls share no memory. Undecided, a gradient is asked for where one can be."""
        asks = self.differentiable if self.requires_grad is None else self.requires_grad
        return replace(self.view, requires_grad=asks).view(self.storage.build())


def recipe(
    values: Array,
    size: tuple[int, ...],
    layout: Layout,
    *,
    dtype: str,
    device: str = "cpu",
    requires_grad: bool | None = None,
    constraint: str = "Real()",
) -> Recipe:
    """Put elements of the shape `layout.owned(size)` into memory."""
    memory, stride = layout.place(values, size)
    view = TensorSpec(0, size, stride, layout.offset, conj=layout.conj, neg=layout.neg)
    return Recipe(StorageSpec(dtype, frozen(memory, dtype), device), view, requires_grad, constraint)


class Tensors(st.SearchStrategy[Recipe]):
    """The strategy that `tensors` gives; it can be asked what it was declared with.

    Attributes:
        dims: The notation of its dimensions.
        constraint: The constraint its elements satisfy.
    """

    def __init__(
        self,
        dims: str,
        *,
        dtype: tuple[str, ...] | None,
        constraint: constrained.Constraint,
        bounds: Bounds | None,
        requires_grad: bool | None,
        layout: tuple[str, ...] | None,
    ) -> None:
        super().__init__()
        self.dims = dims
        self.constraint = constraint
        self._dims = parse(dims)
        self._dtype = dtype
        self._bounds = bounds
        self._requires_grad = requires_grad
        self._layout = layout

    def __repr__(self) -> str:
        """Show the declaration."""
        limit = "" if constrained.is_real(self.constraint) else f", constraint={self.constraint!r}"
        return f"tensors({self.dims!r}{limit})"

    def do_draw(self, data: ConjectureData) -> Recipe:
        """Draw one recipe, with the names and the dtype of the case being drawn."""
        return shared(lambda common: self._draw(cast("st.DrawFn", data.draw), common))

    def _real_of(self, common: Common) -> tuple[str, ...] | None:
        """The dtypes of the case that elements in order can have; None where order does not matter."""
        if self._bounds is None and constrained.is_real(self.constraint):
            return None
        real = tuple(name for name in common.dtypes if not is_complex(name))
        if not real:
            raise StrategyError(f"{self!r} needs a real dtype, the case has {', '.join(common.dtypes)}")
        return real

    def _draw(self, draw: st.DrawFn, common: Common) -> Recipe:
        dtype = common.dtype(draw, self._dtype or self._real_of(common))
        size = draw_shape(draw, common, self._dims)
        salt = common.tensors
        common.tensors += 1
        layout = draw_layout(
            draw,
            len(size),
            names=self._layout,
            event=self.constraint.event_dim,
            real=not is_complex(dtype),
            signed=is_differentiable(dtype) and not is_complex(dtype),
        )
        mode = common.mode(draw)
        owned = layout.owned(size)
        if constrained.is_real(self.constraint):
            values = draw_values(draw, owned, dtype=dtype, bounds=self._bounds, mode=mode, salt=salt)
        else:
            values = _constrained(draw, owned, self.constraint, dtype, mode, salt)
        return recipe(
            values,
            size,
            layout,
            dtype=dtype,
            device=common.device(draw),
            requires_grad=self._requires_grad,
            constraint=constrained.label(self.constraint),
        )


def _constrained(
    draw: st.DrawFn, size: tuple[int, ...], constraint: constrained.Constraint, dtype: str, mode: str, salt: int
) -> Array:
    """Draw real numbers and send them through the transform; in mode special to the edge, where it is inside."""
    transform = constrained.transform(constraint)
    free = tuple(transform.inverse_shape(size))
    z = draw_values(draw, free, dtype="float64", mode="generic" if mode == "special" else mode, salt=salt)
    scale = _MATRIX_SCALE if constraint.event_dim == 2 else 1.0
    x = transform(torch.tensor(np.clip(z, -_FARTHEST, _FARTHEST) * scale))
    if mode == "special" and constraint.event_dim == 0 and x.numel():
        edge = transform(torch.full((), -math.inf, dtype=torch.float64))
        if bool(constraint.check(edge)):
            x.view(-1)[draw(st.integers(0, x.numel() - 1))] = edge
    return rounded(x.numpy(), dtype)


def _check_matrix(dims: str, constraint: constrained.Constraint) -> None:
    """Refuse dims that cannot hold one event of the constraint."""
    parsed = parse(dims)
    event = constraint.event_dim
    last: tuple[Dim, ...] = parsed[len(parsed) - event :] if len(parsed) >= event else ()
    name = constrained.label(constraint)
    if len(last) < event or any(d.variadic for d in last):
        raise StrategyError(f"constraint {name} needs {event} dimensions at the end; dims={dims!r} has no such end")
    if event == 2 and last[0] != last[1]:
        raise StrategyError(f"constraint {name} needs square matrices; end dims={dims!r} with one name twice, as 'n n'")
    if event and any(d.broadcast for d in last):
        raise StrategyError(f"constraint {name} takes whole dimensions; write dims={dims!r} without '#' at the end")


def tensors(
    dims: str,
    *,
    dtype: torch.dtype | str | Iterable[torch.dtype | str] | None = None,
    constraint: str | constrained.Constraint = "real",
    bounds: Bounds | None = None,
    requires_grad: bool | None = None,
    layout: str | Iterable[str] | None = None,
) -> st.SearchStrategy[Recipe]:
    """Recipes of tensors. Names in `dims` have one size each within a case.

    Shrinks to float64, few dimensions, sides of 1, contiguous memory and generic elements near 1.

    Args:
        dims: Names, numbers, sums (``n+1``), ``*b`` for any number of dimensions, ``#n`` for n or 1, ``...``.
        dtype: One or several dtypes; None stands for the real floating ones.
        constraint: A name or an object of torch.distributions.constraints, or ``symmetric``.
        bounds: Lowest and highest element, inclusive.
        requires_grad: Whether a gradient is asked for; None lets the case decide.
        layout: One or several kinds of memory layout; None stands for all that fit.
    """
    kind = constrained.constraint_of(constraint)
    names = None if dtype is None else names_of(dtype)
    limits = checked_bounds(bounds)
    parse(dims)
    if not constrained.is_real(kind):
        if limits is not None:
            raise StrategyError(f"bounds={bounds} and constraint={constraint!r} exclude each other; give one of them")
        if names is not None and not all(is_differentiable(n) and not is_complex(n) for n in names):
            raise StrategyError(f"constraint={constraint!r} needs real floating dtypes, got {', '.join(names)}")
        _check_matrix(dims, kind)
    if names is not None:
        if limits is not None and any(is_complex(n) for n in names):
            raise StrategyError(f"bounds={bounds} have no meaning for complex dtypes; leave them out")
        if requires_grad and not any(is_differentiable(n) for n in names):
            raise StrategyError(f"requires_grad=True, but {', '.join(names)} carries no gradient; leave it out")
    return Tensors(
        dims,
        dtype=names,
        constraint=kind,
        bounds=limits,
        requires_grad=requires_grad,
        layout=checked_kinds(layout),
    )


class Indices(st.SearchStrategy[Recipe]):
    """The strategy that `indices` gives."""

    def __init__(self, dims: str, below: str | int) -> None:
        super().__init__()
        self.dims = dims
        self.below = below
        self._dims = parse(dims)

    def __repr__(self) -> str:
        """Show the declaration."""
        return f"indices({self.dims!r}, below={self.below!r})"

    def do_draw(self, data: ConjectureData) -> Recipe:
        """Draw one recipe; the indexed dimension is not empty unless the tensor is."""
        return shared(lambda common: self._draw(cast("st.DrawFn", data.draw), common))

    def _draw(self, draw: st.DrawFn, common: Common) -> Recipe:
        size = draw_shape(draw, common, self._dims)
        below = self.below
        if isinstance(below, str):
            filled = math.prod(size) > 0
            (below,) = draw_shape(draw, _least(common, below, least=int(filled)), parse(below))
            if filled and below < 1:
                raise Conflict(str(self.below), 1)
        layout = draw_layout(draw, len(size), names=("contiguous", "transposed", "offset", "sliced"), signed=False)
        mode = common.mode(draw)
        bounds = (0.0, float(max(below - 1, 0)))
        values = draw_values(draw, layout.owned(size), dtype="int64", bounds=bounds, mode=mode)
        return recipe(values, size, layout, dtype="int64", device=common.device(draw), requires_grad=False)


def _least(common: Common, name: str, *, least: int) -> Common:
    """Make sure that a name not drawn yet gets at least this size."""
    if name not in common.sizes:
        common.least = {**common.least, name: max(least, common.least.get(name, 0))}
    return common


def indices(dims: str, *, below: str | int = "n") -> st.SearchStrategy[Recipe]:
    """Recipes of int64 tensors that index a dimension, duplicates included.

    The dimension is then at least 1, or the index tensor is empty. Shrinks to zeros in contiguous memory.

    Args:
        dims: The shape of the index tensor, in the notation of `tensors`.
        below: The name of the dimension that is indexed, or its size.
    """
    parse(dims)
    if isinstance(below, bool) or not isinstance(below, (str, int)):
        raise StrategyError(f"below={below!r} is neither the name of a dimension nor a number")
    if isinstance(below, int) and below < 1:
        raise StrategyError(f"below={below} leaves no index; use 1 or more")
    if isinstance(below, str) and not below.isidentifier():
        raise StrategyError(f"below={below!r} is no name of a dimension; write one name, such as 'n'")
    return Indices(dims, below)
