"""Gradients that depend on who else asks for one."""

from __future__ import annotations

from pair import Pair, Pairs, x_of
from torch.autograd import Function


def gradient_needs_the_other_one():
    def product(halve):
        class Product(Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a * b

            @staticmethod
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                factor = 0.5 if halve and not all(ctx.needs_input_grad) else 1.0
                return factor * g * b, factor * g * a

        return Product.apply

    return Pair(product(True), product(False), (x_of(), x_of(1.0, 2.0, 3.0)), "requires-grad-mask", 1, "rev", "input 0")


class TestMask(Pairs):
    pairs = (gradient_needs_the_other_one,)
