"""Plain correct functions as people write them, and inputs of four families."""

# what forward and backward do is torch's to say
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.right import (
    Cubed,
    Exponential,
    Larger,
    Logarithm,
    ScaledBy,
    SineAndSquares,
    Square,
    TimesThree,
    Tripled,
    apply,
)

Tensors = tuple[torch.Tensor, ...]
Shape = tuple[int, ...]

FAMILIES = ("normal", "fuzzed", "large", "small")
# What fuzzers draw: zeros of both signs, ones, halves, small integers, equal entries, the edges of common branches.
SPECIALS = (0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0, 1e-8, -1e-3)
LARGE, SMALL = 1e4, 1e-4


@dataclass(frozen=True, slots=True)
class Plain:
    """A correct function, the shapes of its inputs, and the dtypes it takes.

    Attributes:
        name: How the table calls it.
        function: The function.
        shapes: One an input.
        complex: Whether it takes complex inputs.
        positive: Whether its inputs must be positive.
        low: Whether it takes float32 and bfloat16.
    """

    name: str
    function: Callable[..., Any]
    shapes: tuple[Shape, ...]
    complex: bool = False
    positive: bool = False
    low: bool = True

    def takes(self, dtype: torch.dtype) -> bool:
        """Whether inputs of a dtype make sense to it."""
        if dtype.is_complex:
            return self.complex
        return dtype is torch.float64 or self.low

    def inputs(self, family: str, dtype: torch.dtype, seed: int) -> Tensors:
        """Draw inputs that ask for a gradient; equal arguments give equal draws."""
        generator = torch.Generator().manual_seed(seed * len(FAMILIES) + FAMILIES.index(family))
        return tuple(self._draw(shape, family, dtype, generator) for shape in self.shapes)

    def _draw(self, shape: Shape, family: str, dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        real = torch.complex128 if dtype.is_complex else torch.float64
        x = torch.randn(shape, generator=generator, dtype=real)
        if family == "large":
            x = x * LARGE
        elif family == "small":
            x = x * SMALL
        elif family == "fuzzed":
            picks = torch.randint(len(SPECIALS), shape, generator=generator)
            special = torch.tensor(SPECIALS, dtype=torch.float64)[picks].to(real)
            x = torch.where(torch.rand(shape, generator=generator) < 2 / 3, special, x)
        if self.positive:
            x = x.abs() + (SMALL if family == "small" else 0.25)
        return x.to(dtype).requires_grad_()


def _norm(x: torch.Tensor) -> torch.Tensor:
    return (x - x.mean(-1, keepdim=True)) * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + 1e-3)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


def _cell(x: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    z = torch.sigmoid(x @ w + h)
    return (1 - z) * h + z * torch.tanh(x @ w - h)


def _spd(a: torch.Tensor) -> torch.Tensor:
    return a @ a.mT / (1 + a.square().sum()) + torch.eye(a.shape[-1], dtype=a.dtype)


# A vector, a matrix, a square matrix and a batch.
V, M, S, B = (5,), (4, 3), (3, 3), (2, 3, 4)
INDEX = torch.tensor([0, 2, 2, 1])
PLAIN = (
    Plain("square", lambda x: x * x, (V,), complex=True),
    Plain("cubic", lambda x: x**3 - 2 * x, (V,), complex=True),
    Plain("ratio", lambda x, y: x / (1 + y * y), (V, V)),
    Plain("product", lambda x, w: x @ w, (M, (3, 2)), complex=True),
    Plain("tanh of a product", lambda x, w: torch.tanh(x @ w), (M, (3, 2))),
    Plain("broadcast", lambda x, b: (x + b) * b, (M, (3,)), complex=True),
    Plain("bilinear", lambda x, a, y: torch.einsum("i,ij,j->", x, a, y), ((4,), M, (3,)), complex=True),
    Plain("softplus", F.softplus, (V,)),
    Plain("swish", lambda x: x * torch.sigmoid(x), (V,)),
    Plain("gelu", F.gelu, (V,)),
    Plain("mish", F.mish, (V,)),
    Plain("relu", torch.relu, (V,)),
    Plain("leaky", lambda x: F.leaky_relu(x, 0.1), (V,)),
    Plain("hard tanh", F.hardtanh, (V,)),
    Plain("huber", lambda x, y: F.huber_loss(x, y), (V, V)),
    Plain("absolute", torch.abs, (V,)),
    Plain("clamp", lambda x: x.clamp(-1, 2), (V,)),
    Plain("where", lambda x: torch.where(x > 0, x * x, -x), (V,)),
    Plain("maximum", torch.maximum, (V, V)),
    Plain("largest", lambda x: x.amax(-1), (M,)),
    Plain("sorted", lambda x: torch.sort(x, -1)[0], (M,)),
    Plain("median", lambda x: x.median(), (V,)),
    Plain("top two", lambda x: torch.topk(x, 2)[0], (M,)),
    Plain("running maximum", lambda x: torch.cummax(x, -1)[0], (M,)),
    Plain("softmax", lambda x: torch.softmax(x, -1), (M,)),
    Plain("cross entropy", lambda x: F.cross_entropy(x, INDEX), ((4, 3),)),
    Plain("cross entropy by hand", lambda x: (torch.logsumexp(x, -1) - x[:, 0]).mean(), (M,)),
    Plain("binary cross entropy", lambda x, y: F.binary_cross_entropy_with_logits(x, torch.sigmoid(y)), (V, V)),
    Plain("gaussian", lambda m, s: (m / s).square() / 2 + torch.log(s), (V, V), positive=True),
    Plain("normalised", _norm, (M,)),
    Plain("unit length", lambda x: x / (x.square().sum(-1, keepdim=True) + 1e-3).sqrt(), (M,)),
    Plain("variance", lambda x: x.var(-1), (M,)),
    Plain("attention", _attention, (M, M, M)),
    Plain("gated cell", _cell, (M, (4, 2), (3, 2))),
    Plain("convolution", lambda x, w: F.conv1d(x, w, padding=1), (B, (2, 3, 3))),
    Plain("pooled", lambda x: F.avg_pool1d(x, 2) + F.max_pool1d(x, 2), (B,)),
    Plain("running sum", lambda x: torch.cumsum(x, -1).square(), (M,), complex=True),
    Plain("gathered", lambda x: x[INDEX] * x[:3].sum(), (M,), complex=True),
    Plain("scattered", lambda x: torch.zeros(3, 3, dtype=x.dtype).index_add(0, INDEX, x), (M,), complex=True),
    Plain("embedded", lambda w: F.embedding(INDEX, w), ((3, 2),)),
    Plain("transposed and sliced", lambda x: x.mT[1:, ::2] * 2, (M,), complex=True),
    Plain("stacked", lambda x, y: torch.cat([x, x * y, y], -1).sum(-1), (M, M), complex=True),
    Plain("interpolated", lambda x: F.interpolate(x, scale_factor=2, mode="linear"), (B,), low=False),
    Plain("padded", lambda x: F.pad(x, (1, 2), mode="reflect"), (B,)),
    Plain("solved", lambda a, b: torch.linalg.inv(_spd(a)) @ b, (S, (3, 2)), low=False),
    Plain("log determinant", lambda a: 2 * torch.linalg.cholesky(_spd(a)).diagonal().log().sum(), (S,), low=False),
    Plain("spectrum", lambda x: torch.fft.rfft(x).abs().square().sum(), (V,), low=False),
    Plain("fft", torch.fft.fft, (V,), complex=True, low=False),
    Plain("modulus", lambda z: (z * z.conj()).real, (V,), complex=True),
    Plain("conjugate product", lambda z, w: z.conj() * w, (V, V), complex=True),
    Plain("logarithm", torch.log, (V,), positive=True),
    Plain("power", lambda x, e: x**e, (V, V), positive=True),
    Plain("root", torch.sqrt, (V,), positive=True),
    Plain("two outputs", lambda x: (x.sin(), x.sum()), (V,), complex=True),
    Plain("a constant output", lambda x: (x * 2, torch.ones(2, dtype=x.dtype)), (V,)),
    Plain("dropout", lambda x: F.dropout(x, 0.5), (M,)),
    Plain("a Function", apply(Square), (V,), complex=True),
    Plain("a Function of its output", apply(Exponential), (V,)),
    Plain("a Function with an index", apply(Larger), (M,)),
    Plain("a Function in place", lambda x: apply(Tripled)(x.clone()), (V,), complex=True),
    Plain("a Function with a jvp", apply(Cubed), (V,), complex=True),
    Plain("a Function with a vmap", apply(TimesThree), (V,), complex=True),
    Plain("a Function with a number", lambda x: apply(ScaledBy)(x, 0.5), (V,), complex=True),
    Plain("a Function with two outputs", apply(SineAndSquares), ((4, 2),)),
    Plain("a Function checked at its door", apply(Logarithm), (V,), positive=True),
)
