"""Numbers that contradict differences."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, matrix, operator, x_of
from torch.autograd import Function


def off_by_a_two_thousandth():
    def square(factor):
        return operator(lambda x: x * x, lambda g, x: factor * g * x)

    return Pair(square(2.001), square(2.0), (x_of(),), "wrong-gradient", 1, "rev", "input 0")


def wrong_at_one_element_of_many():
    def square(slip):
        def backward(g, x):
            mask = torch.arange(x.numel(), dtype=x.dtype) == 77
            return 2 * g * x * torch.where(mask, slip, 1.0)

        return operator(lambda x: x * x, backward)

    x = torch.linspace(0.5, 2.0, 200, dtype=torch.float64).requires_grad_()
    return Pair(square(1.01), square(1.0), (x,), "wrong-gradient", 1, "rev", "input 0")


def wrong_for_the_second_input():
    def product(sign):
        return operator(lambda a, b: a * b, lambda g, a, b: (g * b, sign * g * a))

    return Pair(product(-1), product(1), (x_of(), x_of(1.0, 2.0, 3.0)), "wrong-gradient", 1, "rev", "input 1")


def wrong_only_where_the_input_is_negative():
    def absolute(left):
        return operator(torch.abs, lambda g, x: g * torch.where(x < 0, left, 1.0))

    return Pair(absolute(1.0), absolute(-1.0), (x_of(),), "wrong-gradient", 1, "rev", "input 0")


def wrong_at_exactly_zero():
    def identity(at_zero):
        return operator(lambda x: x * 1, lambda g, x: g * torch.where(x == 0, at_zero, 1.0))

    return Pair(identity(0.0), identity(1.0), (x_of(0.0),), "wrong-gradient", 1, "rev", "input 0")


def outside_both_slopes_of_a_kink():
    def relu(at_zero):
        return operator(torch.relu, lambda g, x: g * torch.where(x == 0, at_zero, (x > 0).to(x.dtype)))

    return Pair(relu(3.0), relu(0.5), (x_of(0.0),), "wrong-gradient", 1, "rev", "input 0")


def conjugate_forgotten():
    def square(conj):
        return operator(lambda z: z * z, lambda g, z: 2 * g * (z.conj() if conj else z))

    z = x_of(0.5 + 1j, -1 + 0.25j, dtype=torch.complex128)
    return Pair(square(False), square(True), (z,), "wrong-gradient", 1, "rev", "input 0")


def sum_over_the_broadcast_dimension_is_a_mean():
    def scale(reduce):
        return operator(lambda x, w: x * w, lambda g, x, w: (g * w, reduce(g * x, 0)))

    inputs = (matrix(4, 3), x_of())
    return Pair(scale(torch.mean), scale(torch.sum), inputs, "wrong-gradient", 1, "rev", "input 1")


def value_saved_in_forward():
    class Faulted(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x * x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return 3 * g * ctx.saved_tensors[0]

    twin = operator(lambda x: x**3, lambda g, x: 3 * g * x * x)
    return Pair(Faulted.apply, twin, (x_of(),), "wrong-second-derivative", 2, "rev-rev", "input 0")


def double_backward_lacks_a_term():
    def cube(factor):
        inner = operator(lambda g, x: 3 * g * x * x, lambda gg, g, x: (3 * gg * x * x, factor * gg * g * x))
        return operator(lambda x: x**3, inner)

    return Pair(cube(5.0), cube(6.0), (x_of(),), "wrong-second-derivative", 2, "rev-rev", "input 0")


class TestDerivative(Pairs):
    pairs = (
        off_by_a_two_thousandth,
        wrong_at_one_element_of_many,
        wrong_for_the_second_input,
        wrong_only_where_the_input_is_negative,
        wrong_at_exactly_zero,
        outside_both_slopes_of_a_kink,
        conjugate_forgotten,
        sum_over_the_broadcast_dimension_is_a_mean,
        value_saved_in_forward,
        double_backward_lacks_a_term,
    )
