"""Values that change without gradients."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, x_of


def another_value_without_gradients():
    def scaled(x, factor):
        return x * (1 if torch.is_grad_enabled() else factor)

    return Pair(lambda x: scaled(x, 1.01), lambda x: scaled(x, 1), (x_of(),), "value-changes", 0, "", "output 0")


class TestValue(Pairs):
    pairs = (another_value_without_gradients,)
