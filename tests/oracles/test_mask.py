"""Gradients that depend on who else asks for one."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, x_of
from torch.autograd import Function

from gradfuzz.checker import check


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


def value_needs_the_other_one():
    def product(slip):
        def function(a, b):
            return a * b * (1.5 if slip and a.requires_grad and not b.requires_grad else 1.0)

        return function

    inputs = (x_of(), x_of(1.0, 2.0, 3.0))
    return Pair(product(True), product(False), inputs, "requires-grad-mask", 0, "", "output 0")


def second_derivative_needs_the_other_one():
    def product(halve):
        class Slope(Function):
            @staticmethod
            def forward(ctx, g, a, b):
                ctx.save_for_backward(g, a, b)
                return g * 2 * a * b

            @staticmethod
            def backward(ctx, h):
                g, a, b = ctx.saved_tensors
                factor = 0.5 if halve and not ctx.needs_input_grad[2] else 1.0
                return h * 2 * a * b, factor * h * 2 * g * b, h * 2 * g * a

        class Product(Function):
            @staticmethod
            def forward(ctx, a, b):
                ctx.save_for_backward(a, b)
                return a * a * b

            @staticmethod
            def backward(ctx, g):
                a, b = ctx.saved_tensors
                return Slope.apply(g, a, b), g * a * a

        return Product.apply

    inputs = (x_of(), x_of(1.0, 2.0, 3.0))
    return Pair(product(True), product(False), inputs, "requires-grad-mask", 2, "rev-rev", "input 0")


def three_ask_and_two_do_not():
    def product(slip):
        class Product(Function):
            @staticmethod
            def forward(ctx, a, b, c):
                ctx.save_for_backward(a, b, c)
                return a * b * c

            @staticmethod
            def backward(ctx, g):
                a, b, c = ctx.saved_tensors
                factor = 2.0 if slip and sum(ctx.needs_input_grad) == 2 else 1.0
                return g * b * c, factor * g * a * c, g * a * b

        return Product.apply

    inputs = (x_of(), x_of(1.0, 2.0, 3.0), x_of(-1.0, 0.5, 1.5))
    return Pair(product(True), product(False), inputs, "requires-grad-mask", 1, "rev", "input 1")


class TestMask(Pairs):
    pairs = (
        gradient_needs_the_other_one,
        value_needs_the_other_one,
        second_derivative_needs_the_other_one,
        three_ask_and_two_do_not,
    )


def test_an_infinite_slope_of_an_input_that_stands_still_is_left_in_peace():
    inputs = (x_of(), x_of(1.0, 0.0, 4.0))
    for seed in (0, 1):  # the one asks alone, then the other
        verdict = check(lambda a, b: a * torch.sqrt(b), inputs, oracles=["requires-grad-mask"], seed=seed)
        assert [str(f) for f in verdict.findings] == []
