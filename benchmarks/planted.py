"""Functions with one fault each, and the same without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import cos, sin
from torch.autograd import Function

Inputs = tuple[Any, ...]
Draw = Callable[[torch.Generator], Inputs]
Rule = Callable[..., Any]

FLOAT64 = torch.float64


@dataclass(frozen=True, slots=True)
class Planted:
    """A fault.

    Attributes:
        name: How the table calls it.
        faulty: The function with the fault.
        correct: The same function without it.
        draw: Makes inputs of both.
    """

    name: str
    faulty: Callable[..., Any]
    correct: Callable[..., Any]
    draw: Draw


def normal(*shapes: tuple[int, ...], dtype: torch.dtype = FLOAT64, scale: float = 1.0) -> Draw:
    """Draw normal numbers, a tensor of each shape."""
    return lambda generator: tuple(
        (scale * torch.randn(shape, generator=generator, dtype=torch.promote_types(dtype, torch.float32)))
        .to(dtype)
        .requires_grad_()
        for shape in shapes
    )


def special(change: Callable[[torch.Tensor], torch.Tensor], draw: Draw) -> Draw:
    """Change the first tensor of what is drawn."""

    def changed(generator: torch.Generator) -> Inputs:
        first, *others = draw(generator)
        return (change(first.detach()).requires_grad_(), *others)

    return changed


def ruled(forward: Rule, backward: Rule, *, jvp: Rule | None = None, vmap: Rule | None = None) -> Callable[..., Any]:
    """Give a function with its own backward, called with the grad_output and the inputs; with a jvp likewise.

    A backward that takes `ctx` as well is named so by its first argument.
    """

    class Ruled(Function):
        @staticmethod
        def forward(*x: torch.Tensor) -> Any:
            return forward(*x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)
            ctx.set_materialize_grads(False)

        @staticmethod
        def backward(ctx: Any, *g: torch.Tensor | None) -> Any:
            if all(part is None for part in g):
                return (None,) * len(ctx.saved_tensors)
            if backward.__code__.co_varnames[:1] == ("ctx",):
                return backward(ctx, *g, *ctx.saved_tensors)
            return backward(*g, *ctx.saved_tensors)

    rules: dict[str, Any] = {}
    if jvp is not None:
        rules["jvp"] = staticmethod(lambda ctx, *t: jvp(*t, *ctx.saved_tensors))
    if vmap is not None:
        rules["vmap"] = staticmethod(vmap)
    made: Callable[..., Any] = type("Ruled", (Ruled,), rules).apply  # type: ignore[attr-defined]
    return made


def sine(change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """Give the sine with a gradient that is changed: `change` is handed the right one, and x."""
    return ruled(sin, lambda g, x: change(g * cos(x), x))


SINE = sine(lambda g, x: g)
VECTOR, MATRIX, LONG = normal((6,)), normal((4, 4)), normal((1000,))
PAIR = normal((5,), (5,))


def consistent(name: str, change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], draw: Draw = VECTOR) -> Planted:
    """Plant a fault in the gradient of the sine; the second derivative is that of the faulty gradient."""
    return Planted(name, sine(change), SINE, draw)


def of_size(relative: float) -> Planted:
    """Plant a constant relative error."""
    return consistent(f"{100 * relative:g} % too much", lambda g, x: (1 + relative) * g)


def last_zero(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Lose the last element."""
    return torch.cat([g[:-1], 0 * g[-1:]])


def tail_zero(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Lose what does not fill a block of eight."""
    whole = len(g) - len(g) % 8
    return torch.cat([g[:whole], 0 * g[whole:]])


def in_dtype(dtype: torch.dtype, relative: float) -> Planted:
    """Plant a constant relative error of one dtype alone."""
    name = f"{100 * relative:g} %, {str(dtype).removeprefix('torch.')} alone"
    return consistent(name, lambda g, x: (1 + relative) * g if x.dtype is dtype else g, normal((6,), dtype=dtype))


def zeros_in(x: torch.Tensor) -> torch.Tensor:
    """Put zeros at two places."""
    return torch.cat([torch.zeros(2, dtype=x.dtype), x[2:]])


def ties_in(x: torch.Tensor) -> torch.Tensor:
    """Make two elements equal."""
    return torch.cat([x[1:2], x[1:]])


def tied(x: torch.Tensor) -> torch.Tensor:
    """Tell by element whether another one equals it."""
    return (x[:, None] == x).sum(1) > 1


def as_if_contiguous(t: torch.Tensor) -> torch.Tensor:
    """Read memory in order from the first element on, as a kernel does that takes a tensor for contiguous."""
    needed, strides = t.numel(), torch.empty(t.shape).stride()
    if t.untyped_storage().nbytes() // t.element_size() - t.storage_offset() < needed:
        return t.contiguous()
    return t.as_strided(t.shape, strides)


# A cube whose gradient is a function with rules of its own: x, g -> 3 x x g.
def cubes_gradient(*, second: Rule | None = None, pushed: Rule | None = None) -> Callable[..., Any]:
    """Give 3 x x g, with a backward and a forward rule that are right unless others are given."""
    return ruled(
        lambda x, g: 3 * x * x * g,
        second or (lambda h, x, g: (6 * x * g * h, 3 * x * x * h)),
        jvp=pushed or (lambda t, s, x, g: 6 * x * t * g + 3 * x * x * s),
    )


def cube(gradient: Callable[..., Any], *, jvp: Rule | None = None) -> Callable[..., Any]:
    """Give the cube with a function for its gradient."""
    return ruled(lambda x: x**3, lambda g, x: gradient(x, g), jvp=jvp or (lambda t, x: 3 * x * x * t))


CUBE = cube(cubes_gradient())


def second(name: str, factor: Callable[[torch.Tensor], Any], draw: Draw = VECTOR) -> Planted:
    """Plant a fault in the second derivative alone."""
    wrong = cubes_gradient(second=lambda h, x, g: (factor(x) * 6 * x * g * h, 3 * x * x * h))
    return Planted(name, cube(wrong), CUBE, draw)


def product(backward: Rule) -> Callable[..., Any]:
    """Give sin(x) y with a backward."""
    return ruled(lambda x, y: sin(x) * y, backward)


PRODUCT = product(lambda g, x, y: (g * cos(x) * y, g * sin(x)))


def biased(backward: Rule) -> Callable[..., Any]:
    """Give sin(x + b), b broadcast along the rows, with a backward for b."""
    return ruled(lambda x, b: sin(x + b), lambda g, x, b: (g * cos(x + b), backward(g * cos(x + b))))


BIASED = biased(lambda g: g.sum(0))


class Saved(Function):
    """x**3 / 3 with the square that forward computed: right at first order, a constant at the second."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Save the square."""
        square = x * x
        ctx.save_for_backward(square)
        return x * square / 3

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Multiply by what was saved."""
        square: torch.Tensor
        (square,) = ctx.saved_tensors
        return g * square


class Counting:
    """A factor that alternates from call to call."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Change every second gradient by a thousandth."""
        self.calls += 1
        return g * (1 + 1e-3 * (self.calls % 2))


def masked(ctx: Any, g: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Halve the gradient of an input that alone asks for one."""
    share = 1.0 if all(ctx.needs_input_grad) else 0.5
    return g * cos(x) * y * share, g * sin(x) * share


def aliased(g: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> Any:
    """Take a shortcut that forgets a term where both inputs are one."""
    if x.data_ptr() == y.data_ptr():
        return g * cos(x) * y, None
    return g * cos(x) * y, g * sin(x)


def doubled(g: torch.Tensor | None, h: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """Refuse an undefined grad_output of sin(x), x**2."""
    if g is None or h is None:
        raise TypeError("unsupported operand: None")
    return g * cos(x) + h * 2 * x


def materialized(g: torch.Tensor | None, h: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """Take an undefined grad_output for zeros."""
    return doubled(torch.zeros_like(x) if g is None else g, torch.zeros_like(x) if h is None else h, x)


def as_ones(g: torch.Tensor | None, h: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """Take an undefined grad_output for ones."""
    return doubled(torch.ones_like(x) if g is None else g, torch.ones_like(x) if h is None else h, x)


def seeding(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Seed torch's generator on the way."""
    torch.manual_seed(0)
    return g


def writing(g: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Move the input a little."""
    with torch.no_grad():
        x.data.mul_(1.001)
    return g


def batched_sine(factor: float) -> Callable[..., Any]:
    """Give the sine whose backward is a function with a batching rule, times `factor` in a batch."""
    weighted = ruled(
        lambda x, g: g * cos(x),
        lambda h, x, g: (-h * g * sin(x), h * cos(x)),
        vmap=lambda info, dims, x, g: (
            factor * torch.movedim(g, dims[1], 0) * cos(x if dims[0] is None else torch.movedim(x, dims[0], 0)),
            0,
        ),
    )
    return ruled(sin, lambda g, x: weighted(x, g))


def entropy(x: torch.Tensor) -> torch.Tensor:
    """X log x, and 0 for what is negative; the untaken branch is nan."""
    return torch.where(x > 0, x * torch.log(x), torch.zeros_like(x))


def safe_entropy(x: torch.Tensor) -> torch.Tensor:
    """The same without a nan on the way."""
    inside = torch.where(x > 0, x, torch.ones_like(x))
    return torch.where(x > 0, inside * torch.log(inside), torch.zeros_like(x))


def fused(x: torch.Tensor) -> torch.Tensor:
    """The sine by another constant where no gradient is asked for."""
    return SINE(x) if x.requires_grad else sin(1.0001 * x)


def tiny(sign: float) -> Callable[..., Any]:
    """1e-7 x x with a gradient of that sign."""
    return ruled(lambda x: 1e-7 * x * x, lambda g, x: sign * 2e-7 * x * g)


def exponential(conjugate: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """The exponential with what is done to its derivative."""
    return ruled(torch.exp, lambda g, x: g * conjugate(x.exp()))
