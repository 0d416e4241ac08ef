"""What a finding says, word for word: which derivative, where, got, want and what kind of mistake it looks like."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradfuzz.checker import Symptom, check


def x_of(*values):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=torch.float64, requires_grad=True)


def operator(forward, backward):
    class Operator(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, *grads):
            return backward(*grads, *ctx.saved_tensors)

    return Operator.apply


def said(function, *inputs, **options):
    """The findings, with an error bar by its words alone: its digits are rounding."""
    verdict = check(function, inputs, **options)
    assert verdict.findings, verdict
    return [str(f) for f in verdict.findings]


def without_bar(text):
    head, _, tail = text.partition(" +- ")
    bar, gap, rest = tail.partition(" ")
    assert not tail or float(bar) < 1e-6
    return head + gap + rest


def test_a_factor_is_named():
    square = operator(lambda x: x * x, lambda g, x: g * x)
    assert [without_bar(m) for m in said(square, x_of(3.0))] == [
        "wrong-gradient: first derivative (rev), input 0, element (0,): got 3, want 6 - half what it should be"
    ]


def test_a_sign_is_named():
    product = operator(lambda a, b: a * b, lambda g, a, b: (g * b, -g * a))
    assert [without_bar(m) for m in said(product, x_of(2.0), x_of(5.0))] == [
        "wrong-gradient: first derivative (rev), input 1, element (0,): got -2, want 2 - of the wrong sign"
    ]


def test_a_small_gap_is_written_with_the_digits_that_show_it():
    line = operator(lambda x: x * 1, lambda g, x: g * (1 + 1e-5))
    (message,) = said(line, x_of(2.0), oracles=["wrong-gradient"])
    assert "got 1.00001, want 1 +- " in message


def test_the_elements_that_are_wrong_are_told_by_their_sign():
    absolute = operator(torch.abs, lambda g, x: g)
    (message,) = said(absolute, x_of(-1.0, 2.0, -3.0), oracles=["wrong-gradient"])
    assert "got 1, want -1 +- " in message
    assert message.endswith("of the wrong sign at the elements that are negative, and only there")


def test_a_special_case_in_the_code_is_told_from_a_kink():
    identity = operator(lambda x: x * 1, lambda g, x: g * (x != 0))
    (at_point,) = said(identity, x_of(0.0), oracles=["wrong-gradient"])
    assert without_bar(at_point) == (
        "wrong-gradient: first derivative (rev), input 0, element (0,): got 0, want 1"
        " - zero where it should not be at the elements that are zero, and only there"
        "; only at this very point: a special case in the code"
    )
    relu = operator(torch.relu, lambda g, x: g * torch.where(x == 0, 3.0, (x > 0).to(x.dtype)))
    (at_kink,) = said(relu, x_of(0.0), oracles=["wrong-gradient"])
    assert at_kink == (
        "wrong-gradient: first derivative (rev), input 0, element (0,): got 3, want a number from 0 to 1"
        " - outside both one-sided slopes of a kink"
    )


def test_a_lost_term_of_the_second_derivative_is_told():
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x * x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            return 3 * g * ctx.saved_tensors[0]

    (message,) = said(Cube.apply, x_of(2.0))
    assert without_bar(message) == (
        "wrong-second-derivative: second derivative (rev-rev), input 0, element (0,): got 0, want 12"
        " - the backward uses a value that forward computed and saved, which counts as a constant; compute it anew"
    )


def test_a_detached_gradient_names_the_usual_causes():
    sine = operator(torch.sin, lambda g, x: (g * torch.cos(x)).detach())
    assert said(sine, x_of()) == [
        "detached: second derivative (rev-rev), input 0: got a gradient without a graph, want a gradient that can be"
        " differentiated - the backward computes it where autograd does not record (detach, no_grad, .data or numpy)"
    ]


def test_nan_says_what_the_slopes_converge_to():
    (message,) = said(lambda x: torch.where(x > 0, x * torch.log(x), 0 * x), x_of(-1.0, 2.0), oracles=["nonfinite"])
    assert without_bar(message) == (
        "nonfinite: first derivative (rev), input 0, element (0,): got nan, want 0"
        " - the function is finite here and its slopes converge"
    )


def test_an_undefined_gradient_says_what_to_do():
    class Both(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, a, b):
            return 2 * a + 3 * b

    (message,) = said(Both.apply, x_of(), oracles=["undefined-gradient"])
    assert message == (
        "undefined-gradient: first derivative (rev), grad_output 0: got TypeError(unsupported operand type(s) for *:"
        " 'int' and 'NoneType'), want the gradients that zeros give - backward is handed None for an output nobody"
        " used; treat it as zeros"
    )


def test_what_backward_raised_is_quoted_on_one_line():
    def broken(g, x):
        raise ValueError("first line\nsecond line")

    assert said(operator(torch.sin, broken), x_of()) == [
        "backward-error: first derivative (rev), backward: got ValueError(first line second line), want gradients"
    ]


def test_a_long_exception_is_cut():
    def broken(g, x):
        raise ValueError("x" * 1000)

    (message,) = said(operator(torch.sin, broken), x_of())
    assert len(message) < 300
    assert "..." in message


def test_a_complex_element_says_which_part():
    square = operator(lambda z: z * z, lambda g, z: 2 * g * z)
    z = torch.tensor([0.5 + 1j], dtype=torch.complex128, requires_grad=True)
    (message,) = said(square, z, oracles=["wrong-gradient"])
    assert without_bar(message).startswith(
        "wrong-gradient: first derivative (rev), input 0, element (0,) imaginary part: got "
    )


@pytest.mark.parametrize("seed", range(3))
def test_no_message_shows_two_equal_numbers(seed):
    drift = iter(range(10**6))
    drifting = operator(lambda x: x * 1, lambda g, x: g * (1 + 1e-9 * next(drift)))
    (message,) = said(drifting, x_of(), oracles=[Symptom.NONDETERMINISTIC], seed=seed)
    got, _, want = message.partition("got ")[2].partition(", want ")
    assert got.split(" ")[0] != want
