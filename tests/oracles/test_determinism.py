"""Calls that do not repeat."""

from __future__ import annotations

from pair import Pair, Pairs, operator, x_of


def counts_its_calls():
    calls = []

    def backward(g, x):
        calls.append(1)
        return g * (1 + 0.01 * len(calls))

    return Pair(
        operator(lambda x: x * 1, backward), operator(lambda x: x * 1, lambda g, x: g * 1), (x_of(),),
        "nondeterministic", 1, "rev", "input 0", repeatable=False,
    )  # fmt: skip


class TestDeterminism(Pairs):
    pairs = (counts_its_calls,)
