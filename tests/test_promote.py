"""Functions that hold constants of a lower dtype are judged in double all the same."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradfuzz.checker import Status, check
from gradfuzz.checker.promote import Promoting

LOW = [torch.float32, torch.bfloat16]


def draw(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def linear_tanh(weight, factor):
    """tanh(x @ weight) with a gradient that is off by a factor."""

    class Layer(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.tanh(x @ weight)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            y = torch.tanh(x @ weight)
            return factor * (g * (1 - y * y)) @ weight.T

    return Layer.apply


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_layer_with_weights_of_its_own_passes_with_power(dtype, seed):
    x = draw(3, 4, dtype=dtype).requires_grad_()
    verdict = check(linear_tanh(draw(4, 2, dtype=dtype, seed=1), 1.0), (x,), seed=seed)
    assert verdict.status is Status.PASS, (verdict.findings, verdict.reason)
    assert verdict.elements > 12


@pytest.mark.parametrize("dtype", LOW)
def test_a_factor_far_below_the_dtypes_rounding_is_found_in_its_backward(dtype):
    x = draw(3, 4, dtype=dtype).requires_grad_()
    (finding,) = check(linear_tanh(draw(4, 2, dtype=dtype, seed=1), 1.0001), (x,), oracles=["wrong-gradient"]).findings
    assert "1.0001 times" in finding.explanation


@pytest.mark.parametrize(
    "module",
    [torch.nn.Linear(4, 3), torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU(), torch.nn.Linear(3, 1))],
)
def test_a_module_of_float32_passes_to_the_third_order(module):
    assert check(module, (draw(2, 4).requires_grad_(),), order=3).status is Status.PASS


def test_an_argument_that_names_the_inputs_dtype_goes_with_them():
    def softmax(x, dtype):
        return torch.softmax(x, -1, dtype=dtype) ** 2

    assert check(softmax, (draw(2, 3, dtype=torch.bfloat16).requires_grad_(), torch.bfloat16)).status is Status.PASS


def test_only_operands_that_meet_a_double_are_promoted():
    low, double = draw(2), draw(2).double()
    with Promoting():
        assert (low * low).dtype is torch.float32
        assert (low @ double).dtype is torch.float64
        assert torch.cat([low, double]).dtype is torch.float64
        assert low.dtype is torch.float32
