"""Gradients of less precision than their dtype has."""

from __future__ import annotations

import pytest
import torch
from pair import Pair, Pairs, operator, x_of

from gradfuzz.checker import check


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


def gated_cell_of(size, dtype):
    """A gate near a half beside a state that cancels: 0.5 h + 0.5 tanh(x w - h), whose slope in h is nearly nothing."""
    generator = torch.Generator().manual_seed(0)
    x, h, w = (size * torch.randn(shape, generator=generator) for shape in ((4, 3), (4, 2), (3, 2)))

    def cell(x, h, w):
        z = torch.sigmoid(x @ w + h)
        return (1 - z) * h + z * torch.tanh(x @ w - h)

    return cell, [t.to(dtype).requires_grad_() for t in (x, h, w)]


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_what_is_left_of_terms_that_cancel_in_low_precision_is_rounding(dtype, seed):
    cell, inputs = gated_cell_of(1e-4, dtype)
    assert check(cell, inputs, seed=seed).findings == ()


def test_a_constant_that_is_wrong_in_bfloat16_alone_is_found_at_small_inputs_too():
    pair = constant_rounded_in_low_precision()
    wrong = operator(lambda x: 1.7 * x, lambda g, x: g * (1.9 if x.dtype is torch.bfloat16 else 1.7))
    small = [(1e-4 * t.detach()).to(torch.bfloat16).requires_grad_() for t in pair.inputs]
    assert [f.symptom.value for f in check(wrong, small).findings] == ["precision"]
