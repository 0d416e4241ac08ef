"""Undefined gradients that are not taken for zeros."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, x_of
from torch.autograd import Function


def undefined_is_an_error(materialize):
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            ctx.set_materialize_grads(materialize)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return 2 * a + 3 * b

    return Both.apply


def undefined_raises():
    return Pair(
        undefined_is_an_error(False), undefined_is_an_error(True), (x_of(),), "undefined-gradient", 1, "rev",
        "grad_output 0",
    )  # fmt: skip


def undefined_is_ones():
    def both(instead):
        class Both(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.set_materialize_grads(False)
                ctx.shape = x.shape
                return x * 2, x * 3

            @staticmethod
            def backward(ctx, a, b):
                a = instead(ctx.shape, dtype=torch.float64) if a is None else a
                b = torch.zeros(ctx.shape, dtype=torch.float64) if b is None else b
                return 2 * a + 3 * b

        return Both.apply

    return Pair(both(torch.ones), both(torch.zeros), (x_of(),), "undefined-gradient", 1, "rev", "grad_output 0")


class TestUndefined(Pairs):
    pairs = (
        undefined_raises,
        undefined_is_ones,
    )
