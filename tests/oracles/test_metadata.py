"""Gradients that do not fit their inputs."""

from __future__ import annotations

from pair import Pair, Pairs, operator, x_of


def gradient_of_another_shape():
    def double(reduce):
        return operator(lambda x: 2 * x, lambda g, x: 2 * (g.sum() if reduce else g))

    return Pair(
        lambda x: double(True)(x.expand(2, 3).reshape(6)), lambda x: double(False)(x.expand(2, 3).reshape(6)),
        (x_of(),), "metadata", 1, "rev", "backward",
    )  # fmt: skip


class TestMetadata(Pairs):
    pairs = (gradient_of_another_shape,)
