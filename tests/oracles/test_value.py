"""Values that change without gradients."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, x_of


def another_value_without_gradients():
    def scaled(x, factor):
        return x * (1 if torch.is_grad_enabled() else factor)

    return Pair(lambda x: scaled(x, 1.01), lambda x: scaled(x, 1), (x_of(),), "value-changes", 0, "", "output 0")


def another_value_where_no_input_asks():
    def scaled(slip):
        return lambda x: x * (1.01 if slip and not x.requires_grad else 1.0)

    return Pair(scaled(True), scaled(False), (x_of(),), "value-changes", 0, "", "output 0")


def a_few_digits_less_without_gradients():
    def sine(slip):
        return lambda x: torch.sin(x) if torch.is_grad_enabled() or not slip else torch.sin(x.float()).double()

    return Pair(sine(True), sine(False), (x_of(),), "value-changes", 0, "", "output 0")


class TestValue(Pairs):
    pairs = (another_value_without_gradients, another_value_where_no_input_asks, a_few_digits_less_without_gradients)
