"""Gradients of less precision than their dtype has."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, operator, x_of


def backward_in_half_precision():
    def cube(dtype):
        return operator(lambda x: x**3, lambda g, x: 3 * g * (x.to(dtype) ** 2).to(x.dtype))

    return Pair(cube(torch.float32), cube(torch.float64), (x_of(0.3, -1.1, 2.3),), "precision", 1, "rev", "input 0")


def constant_rounded_in_low_precision():
    def scaled(constant):
        def backward(g, x):
            return g * (constant if x.dtype is torch.float32 else 1.7)

        return operator(lambda x: 1.7 * x, backward)

    return Pair(
        scaled(1.701), scaled(1.7), (x_of(0.3, -1.1, 2.3, dtype=torch.float32),), "precision", 1, "rev", "input 0"
    )


class TestPrecision(Pairs):
    pairs = (
        backward_in_half_precision,
        constant_rounded_in_low_precision,
    )
