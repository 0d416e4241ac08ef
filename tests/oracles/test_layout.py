"""Results that depend on memory layout."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, matrix, operator


def reads_its_grad_output_in_memory_order():
    def weights(x):
        return torch.arange(x.numel(), dtype=x.dtype).reshape(x.shape)

    def backward(contiguous):
        def raw(g, x):
            g = g.contiguous() if contiguous else g
            return torch.as_strided(g, x.shape, torch.empty(x.shape).stride()) * weights(x)

        return raw

    faulty, twin = (operator(lambda x: x * weights(x), backward(contiguous)) for contiguous in (False, True))
    return Pair(faulty, twin, (matrix(),), "layout-dependent", 1, "rev", "grad_output")


def reads_its_input_in_memory_order():
    def cube(contiguous):
        def forward(x):
            y = x.contiguous() if contiguous else x
            return x * torch.as_strided(y, x.shape, torch.empty(x.shape).stride()).square()

        return operator(forward, lambda g, x: 3 * g * x * x)

    return Pair(cube(False), cube(True), (matrix(),), "layout-dependent", 0, "", "output 0")


class TestLayout(Pairs):
    pairs = (
        reads_its_grad_output_in_memory_order,
        reads_its_input_in_memory_order,
    )
