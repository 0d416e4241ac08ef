"""Derivatives that are nan where the function is smooth."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, x_of


def nan_from_an_untaken_branch():
    def guarded(inner):
        return lambda x: torch.where(x > 0, inner(x), torch.zeros_like(x))

    def late(x):
        return x * torch.log(x)

    def early(x):
        safe = torch.where(x > 0, x, torch.ones_like(x))
        return x * torch.log(safe)

    return Pair(guarded(late), guarded(early), (x_of(-1.0, 2.0),), "nonfinite", 1, "rev", "input 0")


class TestNonfinite(Pairs):
    pairs = (nan_from_an_untaken_branch,)
