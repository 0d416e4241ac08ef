"""Exact identities: recorded or not, linear in the grad_output, with the Jacobian that the graph claims."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradfuzz.checker import Status, check


def x_of(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=dtype, requires_grad=True)


def function(forward, backward):
    class Operator(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx, g):
            return backward(g, *ctx.saved_tensors)

    return Operator.apply


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", range(3))
def test_right_functions_keep_them(dtype, seed):
    x = x_of(dtype=dtype)
    for f in (torch.tanh, lambda x: torch.softmax(x, 0), lambda x: x.var(), lambda x: x / x.norm(), torch.relu):
        assert check(f, (x,), seed=seed).findings == ()


def test_a_gradient_that_is_right_only_when_recorded():
    square = function(lambda x: x * x, lambda g, x: 2 * g * x if torch.is_grad_enabled() else 2.5 * g * x)
    (finding,) = check(square, (x_of(),), oracles=["wrong-gradient"]).findings
    assert (finding.order, finding.mode, finding.where) == (1, "rev", "input 0")
    assert "right with create_graph=True and wrong without" in finding.explanation


def test_a_gradient_that_is_wrong_only_when_recorded():
    square = function(lambda x: x * x, lambda g, x: 2.5 * g * x if torch.is_grad_enabled() else 2 * g * x)
    verdict = check(square, (x_of(),), oracles=["wrong-gradient"])
    assert verdict.findings[0].symptom.value == "wrong-gradient"


def test_a_determinant_of_less_than_full_rank_is_right_only_when_recorded():
    singular = torch.tensor([[1.0, 2.0], [2.0, 4.0]], dtype=torch.float64, requires_grad=True)
    (finding,) = check(torch.linalg.det, (singular,), oracles=["wrong-gradient"]).findings
    assert (finding.got, finding.want.split()[0]) == ("0", "4")
    assert "create_graph" in finding.explanation


@pytest.mark.parametrize("seed", range(3))
def test_a_gradient_that_clips_its_grad_output_is_not_linear_in_it(seed):
    clipped = function(lambda x: x * x, lambda g, x: 2 * x * g.clamp(-1, 1))
    assert check(clipped, (x_of(),), seed=seed).findings[0].symptom.value == "wrong-gradient"


def test_a_gradient_with_a_constant_added_is_not_zero_for_zeros():
    shifted = function(lambda x: x * x, lambda g, x: 2 * g * x + 1e-3)
    assert check(shifted, (x_of(),)).findings[0].symptom.value == "wrong-gradient"


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_graph_that_lost_the_grad_output_is_found(dtype):
    lost = function(lambda x: x * x, lambda g, x: 2 * g.detach() * x)
    found = check(lost, (x_of(dtype=dtype),)).findings
    assert {f.symptom.value for f in found} & {"detached", "wrong-second-derivative"}


def test_what_is_declared_detached_breaks_no_identity():
    class TwoInputs(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y

        @staticmethod
        def backward(ctx, g):
            x, y = ctx.saved_tensors
            return g * y, (g * x).detach()

    verdict = check(TwoInputs.apply, (x_of(), x_of(1.0, 2.0, 3.0)), detached=[1])
    assert verdict.status is not Status.FAIL


def in_float32_alone(second):
    """x * y * y through an explicit cast: differences in float32 are all there is, and second derivatives are weak."""

    class Inner(Function):
        @staticmethod
        def forward(ctx, g, x, y):
            ctx.save_for_backward(g, x, y)
            return g * y * y, 2 * g * x * y

        @staticmethod
        def backward(ctx, hx, hy):
            g, x, y = ctx.saved_tensors
            return hx * y * y + 2 * hy * x * y, 2 * hy * g * y, second * hx * g * y + 2 * hy * g * x

    class Outer(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x * y * y

        @staticmethod
        def backward(ctx, g):
            return Inner.apply(g, *ctx.saved_tensors)

    return lambda x, y: Outer.apply(x.float(), y.float())


@pytest.mark.parametrize("seed", range(4))
def test_where_differences_are_weak_an_unsymmetric_second_derivative_is_found(seed):
    x, y = x_of(dtype=torch.float32), x_of(1.5, 0.5, -0.75, dtype=torch.float32)
    assert check(in_float32_alone(2), (x, y), seed=seed).findings == ()
    found = check(in_float32_alone(1), (x, y), seed=seed, oracles=["wrong-second-derivative"]).findings
    assert found
    assert found[0].mode == "rev-rev"
