"""Tangents that are wrong."""

from __future__ import annotations

from pair import Pair, Pairs, x_of
from torch.autograd import Function


class Linear(Function):
    """A Function with a forward rule of its own, off by a factor."""

    factor = 1.0

    @staticmethod
    def forward(x):
        return 3 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 3 * g

    @classmethod
    def jvp(cls, ctx, t):
        return 3 * cls.factor * t


class LinearOff(Linear):
    factor = 1.01


def tangent_off():
    return Pair(LinearOff.apply, Linear.apply, (x_of(),), "forward-mode", 1, "fwd", "output 0")


class TestForwardMode(Pairs):
    pairs = (tangent_off,)
