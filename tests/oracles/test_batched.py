"""Batching rules that are wrong."""

from __future__ import annotations

from pair import Pair, Pairs, x_of
from torch.autograd import Function


def batching_rule_forgets_the_factor():
    def double(factor):
        class Double(Function):
            @staticmethod
            def forward(x):
                return 2 * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, g):
                return Inner.apply(g)

        class Inner(Function):
            @staticmethod
            def forward(g):
                return 2 * g

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, gg):
                return 2 * gg

            @staticmethod
            def vmap(info, in_dims, g):
                return factor * g, in_dims[0]

        return Double.apply

    return Pair(double(3), double(2), (x_of(),), "batched", 1, "rev", "input 0")


class TestBatched(Pairs):
    pairs = (batching_rule_forgets_the_factor,)
