"""Backwards that refuse or raise."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, operator, x_of
from torch.autograd import Function
from torch.autograd.function import once_differentiable


def refuses_a_second_derivative():
    class Once(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.sin(x)

        @staticmethod
        @once_differentiable
        def backward(ctx, g):
            return g * torch.cos(ctx.saved_tensors[0])

    twin = operator(torch.sin, lambda g, x: g * torch.cos(x))
    return Pair(Once.apply, twin, (x_of(),), "not-differentiable", 2, "rev-rev", "double backward")


def backward_raises():
    def sine(slope):
        return operator(torch.sin, lambda g, x: g * slope(x))

    def broken(x):
        return x[7]

    return Pair(sine(broken), sine(torch.cos), (x_of(),), "backward-error", 1, "rev", "backward")


def double_backward_raises():
    class Broken(Function):
        @staticmethod
        def forward(ctx, g, x):
            return g * torch.cos(x)

        @staticmethod
        def backward(ctx, gg):
            raise ValueError("no such thing")

    twin = operator(torch.sin, lambda g, x: g * torch.cos(x))
    return Pair(operator(torch.sin, Broken.apply), twin, (x_of(),), "backward-error", 2, "rev-rev", "double backward")


def recorded_backward_raises():
    def out_of_place(g, x):
        return g * torch.cos(x)

    def with_out(g, x):
        return torch.mul(g, torch.cos(x), out=torch.empty_like(x))

    where = "backward with create_graph"
    faulty, twin = operator(torch.sin, with_out), operator(torch.sin, out_of_place)
    return Pair(faulty, twin, (x_of(),), "backward-error", 2, "rev-rev", where)


class TestRefusal(Pairs):
    pairs = (
        refuses_a_second_derivative,
        backward_raises,
        double_backward_raises,
        recorded_backward_raises,
    )
