"""What is written to behind the back of the base calls: saved tensors, index tensors, the second order."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, operator, x_of
from torch.autograd import Function

from gradfuzz.checker import check


def saved_square(spoil):
    """x**3 by its saved input; `spoil` does something to a saved copy after it was used."""

    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x, x.detach() * 1)
            return x**3

        @staticmethod
        def backward(ctx, g):
            x, copy = ctx.saved_tensors
            result = 3 * g * x * x
            spoil(copy)
            return result

    return Cube.apply


def writes_to_a_saved_tensor_through_data():
    return Pair(
        saved_square(lambda t: t.data.add_(1)), saved_square(lambda t: t.data.add(1)), (x_of(),), "mutation", 1, "rev",
        "a saved tensor",
    )  # fmt: skip


def writes_to_a_saved_tensor_through_numpy():
    def spoil(t):
        t.detach().numpy()[...] = 0

    return Pair(
        saved_square(spoil), saved_square(lambda t: t.detach().numpy().copy()), (x_of(),), "mutation", 1, "rev",
        "a saved tensor",
    )  # fmt: skip


def take(clamp):
    def function(x, index):
        return x[clamp(index, 0, len(x) - 1)] ** 2

    return function


def forward_writes_to_its_index():
    inputs = (x_of(), torch.tensor([0, 5, 1]))
    return Pair(take(torch.Tensor.clamp_), take(torch.Tensor.clamp), inputs, "mutation", 0, "", "input 1")


def second_order_counts():
    calls = []

    def cosine(factor):
        inner = operator(
            lambda g, x: g * torch.cos(x),
            lambda h, g, x: (h * torch.cos(x), -factor() * h * g * torch.sin(x)),
        )
        return operator(torch.sin, inner)

    def counting():
        calls.append(1)
        return 1 + 0.01 * len(calls)

    return Pair(
        cosine(counting), cosine(lambda: 1.0), (x_of(),), "nondeterministic", 2, "rev-rev", "input 0", repeatable=False
    )


class TestSavedMemory(Pairs):
    pairs = (
        writes_to_a_saved_tensor_through_data,
        writes_to_a_saved_tensor_through_numpy,
        forward_writes_to_its_index,
        second_order_counts,
    )


def test_a_running_mean_may_be_written_to():
    def normalised(x, mean):
        mean.mul_(0.9).add_(0.1 * x.detach().mean())
        return (x - x.mean()) ** 2

    verdict = check(normalised, (x_of(), torch.zeros((), dtype=torch.float64)))
    assert verdict.passed, verdict


def test_a_workspace_that_a_function_keeps_may_be_written_to():
    class Doubled(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.space = torch.empty_like(x)
            return 2 * x

        @staticmethod
        def backward(ctx, g):
            ctx.space.copy_(g.detach())
            return 2 * g

    assert check(Doubled.apply, (x_of(),)).passed
