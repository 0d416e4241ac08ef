"""The planted faults, one entry a kind."""

from __future__ import annotations

import torch
from torch import cos, sin

from benchmarks import planted
from benchmarks.planted import CUBE, LONG, MATRIX, PAIR, PRODUCT, SINE, VECTOR, Planted, consistent, normal, special

# Where a function may be approximated otherwise.
LARGE = 1e3

PLANTED: tuple[Planted, ...] = (
    *(planted.of_size(relative) for relative in (1.0, 0.1, 0.01, 1e-3, 5e-4, 1e-4)),
    consistent("the sign", lambda g, x: -g),
    consistent("one element of 1000", planted.last_zero, LONG),
    consistent("one element of 1000, 1 %", lambda g, x: torch.cat([g[:-1], 1.01 * g[-1:]]), LONG),
    consistent("n mod 8 elements", planted.tail_zero, normal((19,))),
    consistent("a branch: negative", lambda g, x: torch.where(x < 0, 1.1 * g, g)),
    consistent("a branch: beyond 1.5", lambda g, x: torch.where(x.abs() > 1.5, 1.1 * g, g), normal((8,), scale=2.0)),
    Planted(
        "large inputs",
        planted.ruled(lambda x: x * x, lambda g, x: torch.where(x.abs() > LARGE, x, 2 * x) * g),
        planted.ruled(lambda x: x * x, lambda g, x: 2 * x * g),
        normal((6,), scale=3 * LARGE),
    ),
    consistent(
        "large inputs, oscillating",
        lambda g, x: torch.where(x.abs() > LARGE, 0 * g, g),
        normal((6,), scale=3 * LARGE),
    ),
    consistent("zero exactly", lambda g, x: torch.where(x == 0, 0 * g, g), special(planted.zeros_in, VECTOR)),
    consistent("ties", lambda g, x: torch.where(planted.tied(x), 0 * g, g), special(planted.ties_in, VECTOR)),
    # Each well above what the dtype rounds to: six epsilons of bfloat16, ten of float16, many of float32.
    planted.in_dtype(torch.float32, 0.01),
    planted.in_dtype(torch.bfloat16, 0.05),
    planted.in_dtype(torch.float16, 0.01),
    Planted("below atol", planted.tiny(-1.0), planted.tiny(1.0), VECTOR),
    consistent("transposed", lambda g, x: g.T, MATRIX),
    Planted("mean for sum", planted.biased(lambda g: g.mean(0)), planted.BIASED, normal((4, 4), (4,))),
    Planted("sum over a wrong dimension", planted.biased(lambda g: g.sum(1)), planted.BIASED, normal((4, 4), (4,))),
    Planted(
        "missing conjugate",
        planted.exponential(lambda d: d),
        planted.exponential(torch.conj),
        normal((4,), dtype=torch.complex128),
    ),
    Planted("missing term", planted.product(lambda g, x, y: (g * cos(x), g * sin(x))), PRODUCT, PAIR),
    Planted("grad_output ignored", planted.sine(lambda g, x: cos(x)), SINE, VECTOR),
    consistent("gradient clipped", lambda g, x: g.clamp(-1.0, 1.0)),
    consistent("wrong with create_graph", lambda g, x: 1.1 * g if torch.is_grad_enabled() else g),
    consistent("wrong without create_graph", lambda g, x: g if torch.is_grad_enabled() else 1.1 * g),
    planted.second("second order, 100 %", lambda x: 2.0),
    planted.second("second order, 0.05 %", lambda x: 1.0005),
    planted.second("second order, a branch", lambda x: (x > 0).to(x.dtype)),
    planted.second(
        "second order, one of 1000", lambda x: (torch.arange(x.numel()) < x.numel() - 1).to(x.dtype).view(x.shape), LONG
    ),
    Planted(
        "second order, missing term",
        planted.ruled(lambda x: x * sin(x), lambda g, x: g * (sin(x) + x.detach() * cos(x))),
        planted.ruled(lambda x: x * sin(x), lambda g, x: g * (sin(x) + x * cos(x))),
        VECTOR,
    ),
    Planted(
        "second order, a partner detached",
        planted.product(lambda g, x, y: (g * cos(x) * y.detach(), g * sin(x))),
        PRODUCT,
        PAIR,
    ),
    Planted("saved intermediate", planted.Saved.apply, lambda x: x**3 / 3, VECTOR),
    consistent("detached", lambda g, x: g.detach()),
    Planted(
        "one of two detached", planted.product(lambda g, x, y: (g * cos(x) * y, (g * sin(x)).detach())), PRODUCT, PAIR
    ),
    Planted("jvp, 100 %", planted.cube(planted.cubes_gradient(), jvp=lambda t, x: 2 * 3 * x * x * t), CUBE, VECTOR),
    Planted("jvp, 0.1 %", planted.cube(planted.cubes_gradient(), jvp=lambda t, x: 3.003 * x * x * t), CUBE, VECTOR),
    Planted(
        "fwd-rev alone",
        planted.cube(planted.cubes_gradient(pushed=lambda t, s, x, g: 3 * x * t * g + 3 * x * x * s)),
        CUBE,
        VECTOR,
    ),
    Planted(
        "rev-fwd alone", planted.cube(planted.cubes_gradient(), jvp=lambda t, x: 3 * (x * x).detach() * t), CUBE, VECTOR
    ),
    Planted(
        "undefined refused",
        planted.ruled(lambda x: (sin(x), x * x), planted.doubled),
        planted.ruled(lambda x: (sin(x), x * x), planted.materialized),
        VECTOR,
    ),
    Planted(
        "undefined taken for ones",
        planted.ruled(lambda x: (sin(x), x * x), planted.as_ones),
        planted.ruled(lambda x: (sin(x), x * x), planted.materialized),
        VECTOR,
    ),
    Planted("mask of requires_grad", planted.product(planted.masked), PRODUCT, PAIR),
    Planted("aliased inputs", planted.product(planted.aliased), PRODUCT, PAIR),
    consistent("nondeterministic", planted.Counting()),
    Planted("writes its grad_output", planted.ruled(sin, lambda g, x: g.mul_(cos(x))), SINE, VECTOR),
    consistent("writes its input", planted.writing),
    consistent("seeds the generator", planted.seeding),
    Planted("value without gradients", planted.fused, SINE, VECTOR),
    Planted("layout of the input", planted.ruled(sin, lambda g, x: g * cos(planted.as_if_contiguous(x))), SINE, MATRIX),
    Planted(
        "layout of the grad_output", planted.ruled(sin, lambda g, x: planted.as_if_contiguous(g) * cos(x)), SINE, MATRIX
    ),
    Planted("batched rule", planted.batched_sine(1.1), planted.batched_sine(1.0), VECTOR),
    Planted("nan of an untaken branch", planted.entropy, planted.safe_entropy, VECTOR),
    consistent("through float32", lambda g, x: g.float().to(g.dtype)),
    consistent("shape", lambda g, x: g.repeat(2)),
)
