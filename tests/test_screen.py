"""The screen: a right function passes it in a few calls, and whatever is wrong never does."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradfuzz.checker import Status, check
from gradfuzz.checker.begin import begin, prepare
from gradfuzz.checker.evaluation import Subject
from gradfuzz.checker.screen import screen


def real(*shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()


def screened(function, *inputs, seed=1, order=2):
    run = begin(Subject(function, inputs, seed=seed), None, order=order, seed=seed)
    prepare(run)
    return screen(run)


RIGHT = {
    "product": (lambda x, w: torch.tanh(x @ w), (real(4, 3), real(3, 5, seed=1))),
    "softmax": (lambda x: torch.softmax(x, -1), (real(6, 7),)),
    "normalised": (lambda x: x / x.norm(), (real(50),)),
    "determinant by hand": (lambda a: a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0], (real(2, 2),)),
    "a scalar": (lambda x: x.sin(), (real(),)),
    "linear": (lambda x: x.sum(), (real(9),)),
    "two outputs": (lambda x: (x.exp(), x.sum()), (real(5),)),
    "a kink elsewhere": (lambda x: torch.relu(x) ** 2, (real(20),)),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_right_function_passes_at_once(name, seed):
    function, inputs = RIGHT[name]
    agreed = screened(function, *inputs, seed=seed)
    assert agreed is not None
    assert agreed.forward


def test_the_first_order_alone_passes_too():
    assert screened(torch.tanh, real(5), order=1) is not None


@pytest.mark.parametrize("size", [4, 400])
def test_the_number_of_calls_does_not_grow_with_the_size(size):
    calls = 0

    def counted(x):
        nonlocal calls
        calls += 1
        return torch.tanh(x) * x

    assert check(counted, (real(size),), seed=3, thorough=False).status is Status.PASS
    assert calls <= 16


def scaled(gradient=1.0, second=1.0, where=lambda x: torch.ones_like(x, dtype=torch.bool)):
    """x**3 with its first or second derivative off by a factor at some elements."""

    class Inner(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return 3 * g * x * x * torch.where(where(x), gradient, 1.0)

        @staticmethod
        def backward(ctx, h):
            g, x = ctx.saved_tensors
            factor = torch.where(where(x), gradient, 1.0)
            return 3 * h * x * x * factor, 6 * h * g * x * factor * torch.where(where(x), second, 1.0)

    class Outer(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return Inner.apply(g, *ctx.saved_tensors)

    return Outer.apply


@pytest.mark.parametrize("off", [2.0, 1.01, 1.0005, 1.0001, 1.00001])
@pytest.mark.parametrize("order", ["gradient", "second"])
def test_a_derivative_that_is_off_never_passes(off, order):
    x = real(30)
    assert screened(scaled(), x) is not None
    assert screened(scaled(**{order: off}), x) is None


@pytest.mark.parametrize("order", ["gradient", "second"])
def test_one_element_of_a_thousand_never_passes(order):
    x = real(1000)

    def one(x):
        return torch.arange(x.numel()) == 617

    assert screened(scaled(**{order: 1.01}, where=one), x) is None
