"""Custom Functions that are right, each written in another of the styles that torch allows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd import Function

Tensors = tuple[torch.Tensor, ...]


def apply(function: type[Function]) -> Callable[..., Any]:
    """Give a Function as something to call."""
    result: Callable[..., Any] = function.apply
    return result


class Square(Function):
    """Saves its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Give the square."""
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Give the gradient."""
        (x,) = ctx.saved_tensors
        return 2 * g * x.conj()


class Exponential(Function):
    """Saves its output, which comes back with a graph; in the style with `setup_context`."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        """Give the exponential."""
        return torch.exp(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: Tensors, output: torch.Tensor) -> None:
        """Save the output."""
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Give the gradient."""
        (y,) = ctx.saved_tensors
        return g * y


class Larger(Function):
    """Two outputs, one of them without a derivative; undefined grad_outputs are handled."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Tensors:
        """Give the largest of each row, and where it is."""
        values, where = x.max(-1)
        ctx.save_for_backward(where)
        ctx.mark_non_differentiable(where)
        ctx.set_materialize_grads(False)
        ctx.width = x.shape[-1]
        return values, where

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor | None, _: object) -> torch.Tensor | None:
        """Give the gradient; undefined for an undefined one."""
        if g is None:
            return None
        (where,) = ctx.saved_tensors
        return F.one_hot(where, ctx.width).to(g.dtype) * g.unsqueeze(-1)


class Tripled(Function):
    """Writes to its argument and says so."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Give three times the input, in its memory."""
        ctx.mark_dirty(x)
        return x.mul_(3)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Give the gradient."""
        return 3 * g


class Cubed(Function):
    """Has a forward rule, and saves for it what reverse mode needs too."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        """Give the cube."""
        return x * x * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Tensors, output: torch.Tensor) -> None:
        """Save the input for both modes."""
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Give the gradient."""
        (x,) = ctx.saved_tensors
        return 3 * g * (x * x).conj()

    @staticmethod
    def jvp(ctx: Any, t: torch.Tensor) -> Any:
        """Give the tangent."""
        (x,) = ctx.saved_tensors
        return 3 * x * x * t


class TimesThree(Function):
    """Has a rule for batches."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        """Give three times the input."""
        return 3 * x

    @staticmethod
    def setup_context(ctx: Any, inputs: Tensors, output: torch.Tensor) -> None:
        """Save nothing."""

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Give the gradient, by the Function itself."""
        return apply(TimesThree)(g)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], x: torch.Tensor) -> tuple[Any, int | None]:
        """Treat a batch as one tensor more."""
        return apply(TimesThree)(x), in_dims[0]


class ScaledBy(Function):
    """Takes a number, whose gradient is None."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
        """Give the input by a factor."""
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Give the gradient of the tensor alone."""
        return g * ctx.factor, None


class SineAndSquares(Function):
    """Two outputs that both have a derivative, one of them a sum."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Tensors:
        """Give the sine, and the sum of squares of each row."""
        ctx.save_for_backward(x)
        return x.sin(), x.square().sum(-1)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor, h: torch.Tensor) -> Any:
        """Give the gradient."""
        (x,) = ctx.saved_tensors
        return g * x.cos() + 2 * h.unsqueeze(-1) * x


class Logarithm(Function):
    """Computes a gradient only for who asks."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Give the logarithm."""
        if (x <= 0).any():
            raise ValueError(f"logarithm of {float(x.min())}; give positive numbers")
        ctx.save_for_backward(x)
        return x.log()

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        """Give the gradient, or None where nobody asks."""
        (x,) = ctx.saved_tensors
        return g / x if ctx.needs_input_grad[0] else None
