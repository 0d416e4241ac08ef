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


def batching_rule_of_the_second_order_swaps_the_batch():
    def double(swap):
        class Square(Function):
            @staticmethod
            def forward(x):
                return x * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx, g):
                (x,) = ctx.saved_tensors
                return Slope.apply(g, x)

        class Slope(Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(g, x):
                return 2 * g * x

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*inputs)

            @staticmethod
            def backward(ctx, h):
                g, x = ctx.saved_tensors
                return 2 * h * x, 2 * Swapped.apply(h) * g

        class Swapped(Function):
            @staticmethod
            def forward(h):
                return h * 1

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, k):
                return k

            @staticmethod
            def vmap(info, in_dims, h):
                return (h.flip(in_dims[0]) if swap else h * 1), in_dims[0]

        return Square.apply

    return Pair(double(True), double(False), (x_of(),), "batched", 2, "rev-rev", "input 0")


class TestBatched(Pairs):
    pairs = (batching_rule_forgets_the_factor, batching_rule_of_the_second_order_swaps_the_batch)
