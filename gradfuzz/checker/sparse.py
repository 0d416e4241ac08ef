"""Sparse inputs, judged as functions of their values: the pattern of a sparse tensor stands still."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function
from torch.utils import _pytree as pytree

from gradfuzz.checker.tensors import dense, is_differentiable
from gradfuzz.errors import CheckError

COMPRESSED = {torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc}
BY_ROWS = {torch.sparse_csr, torch.sparse_bsr}
# A gradient that comes back sparse is looked up through a dense one: 128 MiB of doubles.
MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True, eq=False, slots=True)
class Pattern:
    """Where the values of a sparse tensor lie; equal values in two patterns are two tensors.

    Attributes:
        layout: One of torch's sparse layouts.
        size: The shape of the sparse tensor.
        indices: The indices of COO, or the compressed and the plain ones.
        coalesced: Whether each element of COO occurs once and in order.
        positions: For every value, the index of its element in the flattened dense tensor.
    """

    layout: torch.layout
    size: torch.Size
    indices: tuple[torch.Tensor, ...]
    coalesced: bool
    positions: torch.Tensor

    @classmethod
    def of(cls, x: torch.Tensor) -> Pattern:
        """Read the pattern of a sparse tensor; duplicates of an uncoalesced one are kept."""
        plain = x.detach()
        if x.layout is torch.sparse_coo:
            indices = plain._indices()
            grid = torch.arange(math.prod(x.shape), device=x.device).reshape(x.shape)
            return cls(x.layout, x.shape, (indices,), x.is_coalesced(), grid[tuple(indices)])
        if x.layout in BY_ROWS:
            parts = (plain.crow_indices(), plain.col_indices())
        else:
            parts = (plain.ccol_indices(), plain.row_indices())
        values = plain.values()
        # Every value's own number, spread out: 0 is where there is none.
        numbers = torch.arange(1, values.numel() + 1, dtype=torch.float64, device=x.device).reshape(values.shape)
        spread = _compressed(x.layout, parts, numbers, x.shape).to_dense().reshape(-1)
        places = spread.nonzero().reshape(-1)
        positions = torch.empty(values.numel(), dtype=torch.int64, device=x.device)
        positions[spread[places].long() - 1] = places
        return cls(x.layout, x.shape, parts, True, positions.reshape(values.shape))

    def fill(self, values: torch.Tensor) -> torch.Tensor:
        """Make the sparse tensor with these values, whose memory it shares; without a graph."""
        if self.layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(
                self.indices[0], values.detach(), self.size, is_coalesced=self.coalesced, check_invariants=False
            )
        return _compressed(self.layout, self.indices, values.detach(), self.size)


def _compressed(
    layout: torch.layout, parts: tuple[torch.Tensor, ...], values: torch.Tensor, size: torch.Size
) -> torch.Tensor:
    compressed, plain = parts
    return torch.sparse_compressed_tensor(compressed, plain, values, size, layout=layout, check_invariants=False)


class Fill(Function):
    """values -> the sparse tensor that has them. torch's own constructors give a gradient without a graph."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, pattern: Pattern) -> torch.Tensor:
        """Share the memory of `values`, as torch's constructors do: who writes to the tensor writes to them."""
        ctx.set_materialize_grads(False)
        ctx.pattern = pattern
        return pattern.fill(values)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor | None, None]:
        """Read the gradient, dense or sparse, where the values lie."""
        if grad is None:
            return None, None
        if grad.layout is torch.strided:
            return grad.reshape(-1)[ctx.pattern.positions], None
        return read(grad, ctx.pattern), None


class Read(Function):
    """A sparse tensor -> its elements where a pattern has values: the adjoint of Fill."""

    @staticmethod
    def forward(ctx: Any, sparse: torch.Tensor, pattern: Pattern) -> torch.Tensor:
        """Look up; an element that `sparse` lacks is zero, one that is there twice the sum."""
        ctx.set_materialize_grads(False)
        ctx.pattern = pattern
        return sparse.to_dense().reshape(-1)[pattern.positions]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None) -> tuple[torch.Tensor | None, None]:
        """Put the gradient where the values lie."""
        return (None if grad is None else fill(grad, ctx.pattern)), None


# Typed, where torch's apply is not.
fill: Callable[[torch.Tensor, Pattern], torch.Tensor] = Fill.apply
read: Callable[[torch.Tensor, Pattern], torch.Tensor] = Read.apply


def strided(x: torch.Tensor) -> torch.Tensor:
    """Give a strided tensor of the same elements, differentiable as often as `x` is.

    torch's own conversion refuses a recorded backward where `x` is compressed and complex; the function that gave `x`
    is not to be blamed for that.
    """
    if x.layout not in COMPRESSED or not x.dtype.is_complex:
        return dense(x)
    pattern = Pattern.of(x)
    empty = torch.zeros(x.numel(), dtype=x.dtype, device=x.device)
    return empty.index_put((pattern.positions.reshape(-1),), read(x, pattern).reshape(-1)).reshape(x.shape)


def by_values(func: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Give `func` as a function of the values of its sparse inputs, and the arguments with those in their places.

    A sparse tensor that asks for no gradient stays as it is; without one that does, so does everything.

    Raises:
        CheckError: An input has a layout that is neither strided nor sparse, or is too large.
    """
    leaves, spec = pytree.tree_flatten(arguments)
    patterns: dict[int, Pattern] = {}  # by position among the leaves
    replaced: dict[int, tuple[torch.Tensor, Pattern]] = {}  # by identity: one tensor passed twice stays one
    tensors = 0
    for i, x in enumerate(leaves):
        if not isinstance(x, torch.Tensor):
            continue
        name = f"input {tensors}"
        tensors += 1
        if x.layout is torch.strided or not (is_differentiable(x) and x.requires_grad):
            continue
        if id(x) not in replaced:
            _refuse_what_cannot_be(x, name)
            values = x.detach()._values() if x.layout is torch.sparse_coo else x.detach().values()
            replaced[id(x)] = (values.clone().requires_grad_(), Pattern.of(x))
        leaves[i], patterns[i] = replaced[id(x)]
    if not patterns:
        return func, arguments

    def of_values(*given: Any) -> Any:
        parts = pytree.tree_leaves(given)
        made: dict[tuple[int, Pattern], torch.Tensor] = {}
        for i, pattern in patterns.items():
            key = (id(parts[i]), pattern)
            if key not in made:
                made[key] = fill(parts[i], pattern)
        full = [made[id(p), patterns[i]] if i in patterns else p for i, p in enumerate(parts)]
        return func(*pytree.tree_unflatten(full, spec))

    return of_values, pytree.tree_unflatten(leaves, spec)


def _refuse_what_cannot_be(x: torch.Tensor, name: str) -> None:
    if x.layout is not torch.sparse_coo and x.layout not in COMPRESSED:
        raise CheckError(f"{name} has layout {x.layout}; strided and sparse inputs can be judged, pass it dense")
    if math.prod(x.shape) > MOST_ELEMENTS:
        raise CheckError(
            f"{name} is sparse with shape {tuple(x.shape)}; at most {MOST_ELEMENTS} elements can be looked up "
            "in its gradient, give a smaller one"
        )
