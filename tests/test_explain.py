from __future__ import annotations

import pytest
import torch
from faulty import SavedSquare, positive, real
from torch import cos, sin
from torch.autograd import Function

import gradfuzz


def ruled(forward, backward):
    """A function with a backward as given: called with grad_output and the inputs, recorded like any other."""

    class Ruled(Function):
        @staticmethod
        def forward(ctx, *x):
            ctx.save_for_backward(*x)
            return forward(*x)

        @staticmethod
        def backward(ctx, g):
            return backward(g, *ctx.saved_tensors)

    return Ruled.apply


def exactly(*values):
    return torch.tensor(values, dtype=torch.float64).requires_grad_()


def complexes(count):
    real_part, imaginary = real(count).detach(), real(count, seed=1).detach()
    return torch.complex(real_part, imaginary).requires_grad_()


def explanation(function, *inputs):
    verdict = gradfuzz.check(function, inputs, oracles=["wrong-gradient", "wrong-second-derivative", "detached"])
    assert verdict.findings, verdict
    return verdict.findings[0].explanation


def softmaxed(g, x):
    return g * x.softmax(-1)


WEIGHT = real(3, 3, seed=5).detach()
INDEX = torch.tensor([0, 2, 2, 1])


def picked(g, x):
    """The gradient of x[INDEX] without what the second of two equal indices adds."""
    first = torch.tensor([True, True, False, True])
    return torch.zeros_like(x).index_add(0, INDEX[first], g[first])


def sine(backward):
    """The sine, whose backward is given what flows back if it is right, and x."""
    return ruled(sin, lambda g, x: backward(g * cos(x), x))


SAID = {
    "a factor of two": (sine(lambda g, x: 2 * g), [real(3)], "twice what it should be"),
    "a factor on a scalar": (sine(lambda g, x: 2 * g), [real()], "twice what it should be"),
    "a factor that is no known number": (sine(lambda g, x: 1.0005 * g), [real(3)], "1.0005 times what it should be"),
    "a factor of one in ten thousand": (sine(lambda g, x: 1.0001 * g), [real(3)], "1.0001 times what it should be"),
    "a sum that should be a mean": (
        ruled(lambda x: (x * x).mean(), lambda g, x: 2 * g * x),
        [real(7)],
        "7 times what it should be, the number of elements of input 0: summed where it should be meaned",
    ),
    "a mean that should be a sum": (
        ruled(lambda x: (x * x).sum(), lambda g, x: 2 * g * x / x.numel()),
        [real(7)],
        "1/7 of what it should be, one over the number of elements of input 0: meaned where it should be summed",
    ),
    "an argument that was forgotten": (
        lambda x, beta: ruled(lambda x: sin(x) * beta, lambda g, x: g * cos(x))(x),
        [real(5), 1.7],
        "0.588235 times what it should be, one over the value of argument 1",
    ),
    "a sign": (sine(lambda g, x: -g), [real(3)], "of the wrong sign"),
    "a power of the input as a factor": (
        ruled(lambda x: x**3, lambda g, x: 3 * g * x),
        [real(5)],
        "a factor is missing: got is want / input 0",
    ),
    "a partner as a factor": (
        ruled(lambda x, y: sin(x) * y, lambda g, x, y: (g * cos(x), g * sin(x))),
        [real(5), real(5, seed=1)],
        "a factor is missing: got is want / input 1",
    ),
    "a term with a power of the input": (
        ruled(lambda x: x**3 + x**2, lambda g, x: 3 * g * x * x),
        [real(5)],
        "a term is missing or wrong: got - want is -2 * grad_output * input 0",
    ),
    "a term with the output": (
        ruled(lambda x: x * x.exp(), lambda g, x: g * x.exp()),
        [real(5)],
        "a term is missing: want - got is grad_output * output 0",
    ),
    "a term with the output's square": (
        ruled(torch.sigmoid, lambda g, x: g * torch.sigmoid(x)),
        [real(5)],
        "got - want is grad_output * output 0 ** 2",
    ),
    "a term with a partner": (
        ruled(lambda x, y: x * y + sin(x), lambda g, x, y: (g * cos(x), g * x)),
        [real(5), real(5, seed=1)],
        "a term is missing: want - got is grad_output * input 1",
    ),
    "a term that is a sum over a dimension": (
        ruled(lambda x: x.softmax(-1), softmaxed),
        [real(3, 5)],
        "got - want is output 0 * the sum of grad_output * output 0 over dimension 1",
    ),
    "a term that is the same along a dimension": (
        ruled(lambda x: sin(x) - x.mean(1, keepdim=True) ** 2, lambda g, x: g * cos(x)),
        [real(3, 4)],
        "got - want is the same for all elements along dimension 1: a sum over it is missing or wrong",
    ),
    "a norm taken for a constant": (
        ruled(lambda x: x / x.norm(dim=1, keepdim=True), lambda g, x: g / x.norm(dim=1, keepdim=True)),
        [real(3, 4)],
        "got - want is input 0 times what is the same for all elements along dimension 1",
    ),
    "a straight-through estimator": (
        ruled(torch.tanh, lambda g, x: g),
        [real(4)],
        "the grad_output itself, as if the derivative were 1",
    ),
    "a branch at negative inputs": (
        sine(lambda g, x: torch.where(x > 0, g, 0 * g)),
        [real(6)],
        "zero where it should not be at the elements that are negative, and only there",
    ),
    "a factor at negative inputs": (
        sine(lambda g, x: torch.where(x > 0, g, 2 * g)),
        [real(6)],
        "twice what it should be at the elements that are negative, and only there",
    ),
    "a special case at zero": (
        sine(lambda g, x: torch.where(x == 0, 0 * g, g)),
        [exactly(0, 1, 2, 0, -1)],
        "zero where it should not be at the elements that are zero, and only there",
    ),
    "a special case at ties": (
        ruled(lambda x: x * x, lambda g, x: torch.where((x[:, None] == x).sum(1) > 1, 3 * g * x, 2 * g * x)),
        [exactly(0.5, 1, 2, 0.5, -1)],
        "1.5 times what it should be at the elements that equal another element, and only there",
    ),
    "a special case of equal inputs": (
        ruled(lambda x, y: x * y, lambda g, x, y: (torch.where(x == y, 0 * g, g * y), g * x)),
        [exactly(1, 2, 3, 4), exactly(1, -2, 3, 5)],
        "zero where it should not be where it equals input 1, and only there",
    ),
    "a threshold": (
        ruled(lambda x: x * x, lambda g, x: torch.where(x.abs() > 1.1, 3 * g * x, 2 * g * x)),
        [real(8)],
        "1.5 times what it should be at the elements of absolute value above some number between 1.1",
    ),
    "duplicates among indices": (
        lambda x, index: ruled(lambda x: x[index].clone(), picked)(x),
        [real(5), INDEX],
        "wrong at the positions that occur more than once among the indices, and only there",
    ),
    "a tail that fills no block": (
        sine(lambda g, x: torch.cat([g[:8], 0 * g[8:]])),
        [real(11)],
        "at the last 3 of 11 elements, what a block of 4 or 8 leaves over, and only there",
    ),
    "a last row": (
        sine(lambda g, x: torch.cat([g[:-1], 0 * g[-1:]])),
        [real(4, 4)],
        "zero where it should not be at the last index of dimension 0, and only there",
    ),
    "a last column": (
        sine(lambda g, x: torch.cat([g[:, :-1], 0 * g[:, -1:]], 1)),
        [real(4, 4)],
        "at the last index of dimension 1, and only there",
    ),
    "one element of a thousand": (
        sine(lambda g, x: torch.cat([g[:-1], 0 * g[-1:]])),
        [real(1000)],
        "zero where it should not be at the last index of dimension 0, and only there",
    ),
    "a diagonal": (
        sine(lambda g, x: g * (1 - torch.eye(4))),
        [real(4, 4)],
        "zero where it should not be on the diagonal, and only there",
    ),
    "all but a diagonal": (
        sine(lambda g, x: g * torch.eye(4)),
        [real(4, 4)],
        "zero where it should not be off the diagonal, and only there",
    ),
    "a condition on a partner": (
        ruled(lambda x, y: sin(x) * y, lambda g, x, y: (g * cos(x) * y.clamp(min=0), g * sin(x))),
        [real(6), real(6, seed=1)],
        "zero where it should not be where input 1 is negative, and only there",
    ),
    "a transposed gradient": (sine(lambda g, x: g.T), [real(3, 3)], "transposed"),
    "a transposed grad_output": (
        ruled(lambda x: sin(x).T, lambda g, x: g * cos(x)),
        [real(3, 3)],
        "what it should be if the grad_output were transposed",
    ),
    "a transposed partner": (
        ruled(lambda x, w: x @ w, lambda g, x, w: (g @ w, x.T @ g)),
        [real(3, 3), real(3, 3, seed=1)],
        "what it should be if input 1 were transposed",
    ),
    "a reversed gradient": (sine(lambda g, x: g.flip(0)), [real(4)], "in reverse order along dimension 0"),
    "a gradient moved by one": (sine(lambda g, x: g.roll(1, 0)), [real(4)], "moved by one along dimension 0"),
    "two gradients swapped": (
        ruled(lambda x, y: sin(x) * y, lambda g, x, y: (g * sin(x), g * cos(x) * y)),
        [real(4), real(4, seed=1)],
        "swapped with the gradient of input 0",
    ),
    "a missing conjugate": (
        ruled(torch.exp, lambda g, x: g * x.exp()),
        [complexes(4)],
        "the conjugate of what it should be",
    ),
    "a sum over the wrong dimension": (
        ruled(lambda x, b: sin(x + b), lambda g, x, b: (g * cos(x + b), (g * cos(x + b)).sum(1))),
        [real(3, 3), real(3, seed=2)],
        "summed over dimension 1 of the output where it should be over dimension 0",
    ),
}


@pytest.mark.parametrize("fault", SAID)
def test_the_kind_of_mistake_is_said(fault):
    function, inputs, words = SAID[fault]
    assert words in explanation(function, *inputs)


# Neighbours of the faults above, and what must not be said of them.
NOT_SAID = {
    "two factors at random elements are no ratio": (
        sine(lambda g, x: g * torch.tensor([2.0, 3.0, 2.0, 3.0, 2.0], dtype=g.dtype)),
        [real(5)],
        ("twice", "times", "negative", "positive"),
    ),
    "a scale that depends on the input is no ratio": (
        sine(lambda g, x: g * (x.exp().atan() + x * x)),
        [real(5)],
        ("times what it should be", "missing", "and only there"),
    ),
    "a ratio of a number near the count is not the count": (
        ruled(lambda x: (x * x).mean(), lambda g, x: 2.002 * g * x),
        [real(7)],
        ("number of elements",),
    ),
    "a factor that is the length and an argument too is neither": (
        lambda x, n: ruled(lambda x: (x * x).sum(), lambda g, x: 2 * n * g * x)(x),
        [real(5), 5],
        ("argument", "number of elements"),
    ),
    "a factor of two of two elements is twice, whatever else numbers two": (
        ruled(lambda x: (x * x).sum(), lambda g, x: 4 * g * x),
        [real(2)],
        ("number of elements",),
    ),
    "a fault everywhere has no region": (
        sine(lambda g, x: 2 * g),
        [real(6)],
        ("and only there",),
    ),
    "elements at places drawn at random have no region": (
        sine(lambda g, x: torch.where(torch.tensor([1, 0, 0, 1, 0, 0, 0, 1, 0, 0]) > 0, 0 * g, g)),
        [real(10)],
        ("and only there",),
    ),
    "negative inputs that are wrong only beyond -1 are not all the negative ones": (
        sine(lambda g, x: torch.where(x < -0.5, 0 * g, g)),
        [real(12)],
        ("that are negative",),
    ),
    "positive inputs that are wrong only from 0.3 on are not all the positive ones": (
        sine(lambda g, x: torch.where(x > 0.3, 0 * g, g)),
        [real(5)],
        ("that are positive",),
    ),
    "a symmetric gradient is not transposed": (
        sine(lambda g, x: 3 * g),
        [torch.ones(3, 3, dtype=torch.float64).requires_grad_()],
        ("transposed",),
    ),
    "a complex factor is no conjugate": (
        ruled(torch.exp, lambda g, x: g * x.exp().conj() * 1j),
        [complexes(4)],
        ("conjugate",),
    ),
    "a conjugate beside a factor is not said to be one": (
        ruled(torch.exp, lambda g, x: 2 * g * x.exp()),
        [complexes(4)],
        ("conjugate", "twice"),
    ),
    "a right dimension with a factor is not the wrong dimension": (
        ruled(lambda x, b: sin(x + b), lambda g, x, b: (g * cos(x + b), 2 * (g * cos(x + b)).sum(0))),
        [real(3, 3), real(3, seed=2)],
        ("summed over",),
    ),
    "equal gradients are not swapped": (
        ruled(lambda x, y: sin(x) + sin(y), lambda g, x, y: (2 * g * cos(x), g * cos(y))),
        [real(4), real(4, seed=1)],
        ("swapped",),
    ),
}


@pytest.mark.parametrize("neighbour", NOT_SAID)
def test_what_is_not_so_is_not_said(neighbour):
    function, inputs, words = NOT_SAID[neighbour]
    said = explanation(function, *inputs)
    assert not [word for word in words if word in said], said


class CubesGradient(Function):
    """3 x x g with a derivative by x that is `factor` times what it should be."""

    @staticmethod
    def forward(ctx, x, g, factor):
        ctx.save_for_backward(x, g)
        ctx.factor = factor
        return 3 * x * x * g

    @staticmethod
    def backward(ctx, h):
        x, g = ctx.saved_tensors
        return ctx.factor(x) * 6 * x * g * h, 3 * x * x * h, None


def cube(factor):
    return ruled(lambda x: x**3, lambda g, x: CubesGradient.apply(x, g, factor))


SECOND = {
    "a saved intermediate": (SavedSquare.apply, [real(3)], "the backward uses a value that forward computed and saved"),
    "a sign": (cube(lambda x: -1), [real(4)], "the first derivative is right, the second is of the wrong sign"),
    "a factor": (cube(lambda x: 1.5), [real(4)], "the second is 1.5 times what it should be"),
    "a branch": (
        cube(lambda x: (x > 0).to(x.dtype)),
        [real(6)],
        "zero where it should not be at the elements that are negative, and only there",
    ),
    "a missing factor": (cube(lambda x: 1 / x), [real(4)], "a factor is missing: got is want / input 0"),
    "a missing term": (
        ruled(lambda x: x**3 + x**4, lambda g, x: g * (3 * x * x.detach() + 4 * x**3)),
        [real(4)],
        "a term is missing or wrong: got - want is -3 * grad_output * input 0",
    ),
    "one of two inputs without its graph": (
        ruled(lambda x, y: x**2 * y**2, lambda g, x, y: (2 * g * x * y.detach() ** 2, 2 * g * x * x * y)),
        [real(4), real(4, seed=1)],
        "the backward uses input",
    ),
}


@pytest.mark.parametrize("fault", SECOND)
def test_a_second_derivative_is_explained_where_the_first_is_right(fault):
    function, inputs, words = SECOND[fault]
    assert words in explanation(function, *inputs)


def test_a_second_derivative_wrong_by_no_known_term_is_left_unexplained():
    assert explanation(cube(lambda x: x.exp().atan()), real(4)) == ""


def test_a_gradient_right_with_create_graph_and_wrong_without_is_said_to_be():
    function = ruled(lambda x: x * x, lambda g, x: (2 if torch.is_grad_enabled() else 3) * g * x)
    assert "right with create_graph=True and wrong without" in explanation(function, real(4))


def test_a_gradient_wrong_with_create_graph_alone_is_said_to_be():
    function = ruled(lambda x: x * x, lambda g, x: (3 if torch.is_grad_enabled() else 2) * g * x)
    assert "wrong with create_graph=True" in explanation(function, real(4))


def test_a_gate_whose_branch_is_detached_says_at_which_elements():
    function = ruled(lambda x: x**3, lambda g, x: torch.where(x > 0, 3 * g * x * x, 3 * g * (x * x).detach()))
    assert "zero where it should not be at the elements that are negative" in explanation(function, real(6))


def test_a_branch_without_any_graph_says_at_which_elements():
    function = ruled(lambda x: x**3, lambda g, x: torch.where(x > 0, 3 * g * x * x, (3 * g * x * x).detach()))
    said = explanation(function, real(6))
    assert "what carries a graph in the gradient of input 0 is zero where it should not be" in said
    assert "at the elements that are negative, and only there" in said


def test_explaining_leaves_the_generator_alone():
    before = torch.random.get_rng_state()
    explanation(sine(lambda g, x: 2 * g), positive(3))
    assert torch.equal(before, torch.random.get_rng_state())


def test_the_same_check_explains_alike_every_time():
    function = sine(lambda g, x: torch.where(x.abs() > 1.1, 3 * g, g))
    assert explanation(function, real(8)) == explanation(function, real(8))


def test_a_failure_to_explain_loses_no_finding(monkeypatch):
    def fails(*_):
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr("gradfuzz.checker.explain._said", fails)
    x = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    (finding,) = gradfuzz.check(lambda x: x * x.detach(), (x,), oracles=["wrong-gradient"]).findings
    assert "gradfuzz failed to explain it, an error of its own: ZeroDivisionError(one over nothing)" in str(finding)
