"""Memory that is written to."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, operator, x_of


def backward_writes_to_its_grad_output():
    def double(times):
        return operator(lambda x: 2 * x, lambda g, x: times(g, 2))

    return Pair(double(torch.Tensor.mul_), double(torch.mul), (x_of(),), "mutation", 1, "rev", "grad_output 0")


def forward_writes_to_its_input():
    def twice(x, copy):
        y = x.detach().clone() if copy else x.detach()
        y.mul_(2)
        return x * 2

    return Pair(lambda x: twice(x, copy=False), lambda x: twice(x, copy=True), (x_of(),), "mutation", 0, "", "input 0")


class TestMutation(Pairs):
    pairs = (
        backward_writes_to_its_grad_output,
        forward_writes_to_its_input,
    )
