"""order=3: one order more, where the first two are right."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from gradfuzz.checker import Status, check
from gradfuzz.errors import CheckError


def x_of(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=dtype, requires_grad=True)


def cube(third):
    """x**3 whose double backward is given: right at the first two orders, by `third` at the next."""

    class Backward(Function):
        @staticmethod
        def forward(ctx, g, x):
            ctx.save_for_backward(g, x)
            return 3 * g * x * x

        backward = staticmethod(third)

    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return Backward.apply(g, x)

    return Cube.apply


def right(ctx, h):
    g, x = ctx.saved_tensors
    return 3 * h * x * x, 6 * h * g * x


def without_its_graph(ctx, h):
    g, x = ctx.saved_tensors
    return 3 * h * x * x, 6 * h * g * x.detach()


@once_differentiable
def refused(ctx, h):
    g, x = ctx.saved_tensors
    return 3 * h * x * x, 6 * h * g * x


@pytest.mark.parametrize(
    "function", [cube(right), torch.tanh, torch.exp, lambda x: torch.softmax(x, 0), lambda x: x.sum(), torch.relu]
)
@pytest.mark.parametrize("seed", range(3))
def test_a_right_function_is_right_to_the_third_order(function, seed):
    verdict = check(function, (x_of(),), order=3, seed=seed)
    assert verdict.status is Status.PASS, (verdict.findings, verdict.reason)


def test_the_third_order_is_compared_too():
    assert check(torch.tanh, (x_of(),), order=3).elements > check(torch.tanh, (x_of(),), order=2).elements


@pytest.mark.parametrize("seed", range(3))
def test_a_fault_of_the_third_order_is_found_at_the_third_order_alone(seed):
    assert check(cube(without_its_graph), (x_of(),), order=2, seed=seed).status is Status.PASS
    (finding,) = check(cube(without_its_graph), (x_of(),), order=3, seed=seed).findings
    assert (finding.symptom.value, finding.order, finding.mode) == ("wrong-second-derivative", 3, "rev-rev-rev")
    assert str(finding).startswith("wrong-second-derivative: third derivative (rev-rev-rev), input 0")


def test_a_third_derivative_that_is_refused_is_said_to_be():
    (finding,) = check(cube(refused), (x_of(),), order=3).findings
    assert (finding.symptom.value, finding.order) == ("not-differentiable", 3)
    assert "order=2" in finding.explanation


def test_what_is_wrong_before_is_reported_before():
    wrong = check(lambda x: x * x.detach(), (x_of(),), order=3)
    assert {f.order for f in wrong.findings} == {1}


def test_given_grad_outputs_and_outputs_without_a_graph_are_no_obstacle():
    def two(x):
        return x**3, torch.ones(2, dtype=x.dtype), x.sum()

    verdict = check(two, (x_of(),), [torch.ones(3), None, torch.tensor(2.0)], order=3)
    assert verdict.findings == ()


@pytest.mark.parametrize("order", [0, 4])
def test_other_orders_are_refused_by_value(order):
    with pytest.raises(CheckError, match=f"order={order}: derivatives of order 1, 2 and 3"):
        check(torch.tanh, (x_of(),), order=order)
