"""State that is left changed."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, operator, x_of


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


def leaves_another_default_device():
    def doubled(device):
        def function(x):
            torch.set_default_device(device)
            return 2 * x

        return function

    return Pair(doubled("meta"), doubled("cpu"), (x_of(),), "global-state", None, "", "default device")


def leaves_autocast_on():
    def double(flag):
        def function(x):
            torch.set_autocast_enabled("cpu", flag)
            return 2 * x

        return function

    return Pair(double(True), double(False), (x_of(),), "global-state", None, "", "autocast")


def double_backward_leaves_another_matmul_precision():
    def sine(precision):
        def slope(h, g, x):
            torch.set_float32_matmul_precision(precision)
            return h * torch.cos(x), -h * g * torch.sin(x)

        return operator(torch.sin, operator(lambda g, x: g * torch.cos(x), slope))

    return Pair(sine("medium"), sine("highest"), (x_of(),), "global-state", None, "", "matmul precision")


class TestGlobalState(Pairs):
    pairs = (
        leaves_the_default_dtype_changed,
        reseeds_the_generator,
        leaves_another_default_device,
        leaves_autocast_on,
        double_backward_leaves_another_matmul_precision,
    )
