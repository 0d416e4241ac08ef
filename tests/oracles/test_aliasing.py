"""One tensor for two arguments."""

from __future__ import annotations

from pair import Pair, Pairs, operator, x_of


def same_tensor_twice_is_taken_for_a_square():
    def product(shortcut):
        def backward(g, a, b):
            if shortcut and a.data_ptr() == b.data_ptr():
                return g * b, None
            return g * b, g * a

        return operator(lambda a, b: a * b, backward)

    return Pair(product(True), product(False), (x_of(), x_of(1.0, 2.0, 3.0)), "aliasing", 1, "rev", "input 0")


class TestAliasing(Pairs):
    pairs = (same_tensor_twice_is_taken_for_a_square,)
