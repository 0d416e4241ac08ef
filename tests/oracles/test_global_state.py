"""State that is left changed."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, x_of


def leaves_the_default_dtype_changed():
    def doubled(x, dtype):
        torch.set_default_dtype(dtype)
        return 2 * x

    return Pair(
        lambda x: doubled(x, torch.float64), lambda x: doubled(x, torch.float32), (x_of(),), "global-state", None, "",
        "default dtype",
    )  # fmt: skip


def reseeds_the_generator():
    def doubled(x, seed):
        if seed:
            torch.manual_seed(3)
        return 2 * x

    return Pair(lambda x: doubled(x, True), lambda x: doubled(x, False), (x_of(),), "global-state", None, "", "seed")


class TestGlobalState(Pairs):
    pairs = (
        leaves_the_default_dtype_changed,
        reseeds_the_generator,
    )
