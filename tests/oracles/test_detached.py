"""Gradients without a graph."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, operator, x_of


def backward_without_graph():
    def sine(slope):
        return operator(torch.sin, lambda g, x: g * slope(x))

    def through_data(g, x):
        return (g * torch.cos(x)).detach()

    return Pair(operator(torch.sin, through_data), sine(torch.cos), (x_of(),), "detached", 2, "rev-rev", "input 0")


def no_graph_at_all():
    return Pair(lambda x: x.detach() ** 2, lambda x: x**2, (x_of(),), "detached", 1, "rev", "input 0")


class TestDetached(Pairs):
    pairs = (
        backward_without_graph,
        no_graph_at_all,
    )
