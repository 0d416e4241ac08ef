"""One tensor for two arguments."""

from __future__ import annotations

import torch
from pair import Pair, Pairs, operator, x_of

from gradfuzz.checker import check


def same_tensor_twice_is_taken_for_a_square():
    def product(shortcut):
        def backward(g, a, b):
            if shortcut and a.data_ptr() == b.data_ptr():
                return g * b, None
            return g * b, g * a

        return operator(lambda a, b: a * b, backward)

    return Pair(product(True), product(False), (x_of(), x_of(1.0, 2.0, 3.0)), "aliasing", 1, "rev", "input 0")


def second_derivative_of_the_same_tensor_twice_lacks_a_term():
    def product(shortcut):
        def slope(h, g, a, b):
            both = shortcut and a.data_ptr() == b.data_ptr()
            return h * b, torch.zeros_like(a), h * g * (0.5 if both else 1.0)

        inner = operator(lambda g, a, b: g * b, slope)
        return operator(lambda a, b: a * b, lambda g, a, b: (inner(g, a, b), g * a))

    inputs = (x_of(), x_of(1.0, 2.0, 3.0))
    return Pair(product(True), product(False), inputs, "aliasing", 2, "rev-rev", "input 0")


def views_of_one_base_are_taken_for_one_tensor():
    def product(by_storage):
        def backward(g, a, b):
            if by_storage and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr():
                return 2 * g * b, torch.zeros_like(g)
            return g * b, g * a

        return operator(lambda a, b: a * b, backward)

    inputs = (x_of(), x_of(1.0, 2.0, 3.0))
    return Pair(product(True), product(False), inputs, "aliasing", 1, "rev", "input 0")


def an_input_that_is_no_leaf_is_left_out():
    def square(slip):
        def function(x):
            return x * (x if x.is_leaf or not slip else x.detach())

        return function

    return Pair(square(True), square(False), (x_of(),), "aliasing", 1, "rev", "input 0")


class TestAliasing(Pairs):
    pairs = (
        same_tensor_twice_is_taken_for_a_square,
        second_derivative_of_the_same_tensor_twice_lacks_a_term,
        views_of_one_base_are_taken_for_one_tensor,
        an_input_that_is_no_leaf_is_left_out,
    )


def test_second_derivatives_that_cancel_to_rounding_for_equal_tensors_are_left_in_peace():
    def angle(a, b):
        return torch.relu(torch.cosine_similarity(a, b, dim=0) - 0.5)

    # Nothing is left of the outputs at the inputs themselves, so that their size says nothing of rounding.
    inputs = (x_of(0.7, -1.3, 2.1, 0.4), x_of(-0.9, 1.1, 0.3, -2.2))
    for seed in range(4):
        verdict = check(angle, inputs, oracles=["aliasing"], seed=seed)
        assert [str(f) for f in verdict.findings] == []
