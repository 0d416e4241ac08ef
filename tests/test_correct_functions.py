"""Correct functions of every kind are left in peace: kinks, ties, special values, layouts, low precision."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # its usual name
from torch.autograd import Function

from gradfuzz.checker import Status, check


def x_of(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=dtype, requires_grad=True)


def matrix(rows=2, columns=3, dtype=torch.float64):
    values = torch.linspace(-1.3, 1.7, rows * columns, dtype=torch.float64)
    return values.reshape(rows, columns).to(dtype).requires_grad_()


def square_matrix(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(2, 2).requires_grad_()


class Square(Function):
    """A correct Function with everything: undefined gradients, a graph in backward, no state."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return None if g is None else 2 * g * ctx.saved_tensors[0]


class WithAuxiliary(Function):
    """The second output is declared not to be differentiable."""

    @staticmethod
    def forward(ctx, x):
        count = (x > 0).to(x.dtype)
        ctx.mark_non_differentiable(count)
        ctx.save_for_backward(x)
        return x * x, count

    @staticmethod
    def backward(ctx, g, _):
        return 2 * g * ctx.saved_tensors[0]


def changes_a_copy_in_place(x):
    y = x.clone()
    y[0] = y[0] * 2
    return y.mul_(x)


def with_keyword(x, *, slope):
    return F.leaky_relu(x, slope)


def with_dict(x):
    return {"sum": x.sum(), "parts": (x.exp(), [x**2])}


def view_of(x):
    return x.detach().reshape(3, -1).repeat(1, 2)[:, ::2].requires_grad_()


def two_views():
    base = torch.tensor([0.5, -1.25, 2.0, 0.75], dtype=torch.float64)
    return base[:3].requires_grad_(), base[1:].requires_grad_()


def not_a_leaf():
    return x_of().view(3) * 1


INDEX = torch.tensor([0, 2, 2])
Z = x_of(0.5 + 1j, -1 + 0.25j, dtype=torch.complex128)
HALVES = (torch.float32, torch.bfloat16, torch.float16)

CORRECT = {
    "smooth": (lambda x: torch.tanh(x).sin(), (x_of(),)),
    "abs at 0": (torch.abs, (x_of(0.0, 1.0, -1.0),)),
    "relu at 0": (torch.relu, (x_of(0.0, -0.0, 2.0),)),
    "clamp at its bounds": (lambda x: x.clamp(-1, 1), (x_of(-1.0, 0.5, 1.0),)),
    "maximum of two equal entries": (torch.amax, (x_of(1.0, 1.0, 0.0),)),
    "maximum of equal tensors": (torch.maximum, (x_of(1.0, 2.0), x_of(1.0, 2.0))),
    "median of equal entries": (torch.median, (x_of(0.0, 0.0, 0.0),)),
    "sort of four equal entries": (lambda x: torch.sort(x)[0], (x_of(0.0, 0.0, 0.0, 0.0),)),
    "second smallest of four equal entries": (lambda x: torch.kthvalue(x, 2)[0], (x_of(1.0, 1.0, 1.0, 1.0),)),
    "quantile of equal entries": (lambda x: torch.quantile(x, 0.4), (x_of(0.0, 0.0, 0.0, 0.0),)),
    "cumulative maximum with ties": (lambda x: x.cummax(0)[0], (x_of(0.0, 0.0, 1.0, 1.0),)),
    "infinite slope": (torch.sqrt, (x_of(0.0, 1.0),)),
    "logarithm at 0": (torch.log, (x_of(0.0, 1.0),)),
    "infinite entries": (torch.tanh, (x_of(float("inf"), -float("inf"), 0.5),)),
    "nan passes through": (lambda x: x * 2, (x_of(float("nan"), 1.0),)),
    "staircase far out": (torch.ceil, (x_of(27805.42578125, 9027.8564453125),)),
    "sawtooth far out": (torch.frac, (x_of(9344.3, -2608.2, 600.1),)),
    "oscillation far out": (torch.tan, (x_of(18992.0, 18992.0),)),
    "cancellation": (lambda x: (x + 1e8) - 1e8, (x_of(1.3e-4, -7.8e-5, 9.7e-7),)),
    "gradient that cancels": (F.tanhshrink, (x_of(-1.01e-4, -1.7e-4, -1.6e-5),)),
    "large offset": (lambda x: (x + 1e6).var(), (x_of(),)),
    "huge": (torch.logsumexp, (x_of(-11392.0, 5472.0, 19200.0), 0)),
    "tiny": (lambda x: x**3, (x_of(1e-4, -3e-5),)),
    "wide": (lambda x: x.square().sum(), (x_of(1e-8, 1e4, -3.0),)),
    "dropout": (lambda x: F.dropout(x, 0.5), (x_of(),)),
    "noise": (lambda x: x * torch.randn_like(x), (x_of(),)),
    "noise by sign": (lambda x: F.rrelu(x, training=True), (x_of(0.0, -1.0, 1.0),)),
    "in place on a copy": (changes_a_copy_in_place, (x_of(),)),
    "its input itself": (lambda x: x, (x_of(),)),
    "a view of its input": (lambda x: x[1:], (x_of(),)),
    "auxiliary output": (lambda x: (x**2, x.detach() * 3), (x_of(),)),
    "declared auxiliary output": (WithAuxiliary.apply, (x_of(),)),
    "constant output": (lambda x: (x**2, torch.ones(2)), (x_of(),)),
    "integer output": (lambda x: (x**2, x.argsort()), (x_of(),)),
    "nested outputs": (with_dict, (x_of(),)),
    "unused input": (lambda x, y: x**2, (x_of(), x_of())),
    "keyword": (lambda x: with_keyword(x, slope=0.1), (x_of(),)),
    "numbers beside": (torch.clamp, (x_of(), -1.0, 1.0)),
    "indices beside": (lambda x, i: x[i], (x_of(), INDEX)),
    "a constant tensor beside": (torch.mul, (x_of(), torch.ones(3, dtype=torch.float64))),
    "a list of tensors": (lambda xs: torch.cat(xs), ([x_of(), x_of(1.0)],)),
    "complex": (lambda z: z * z.conj() + z.exp(), (Z,)),
    "complex to real": (lambda z: z.abs(), (Z,)),
    "real to complex": (torch.fft.fft, (x_of(),)),
    "modulus at 0": (lambda z: z.abs(), (x_of(0j, 1j, dtype=torch.complex128),)),
    "scalar": (torch.sin, (torch.tensor(0.5, dtype=torch.float64, requires_grad=True),)),
    "one element": (torch.cos, (x_of(0.5),)),
    "empty": (torch.sin, (torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),)),
    "no rows": (lambda x: x.sum(0), (torch.zeros(0, 3, dtype=torch.float64, requires_grad=True),)),
    "view": (torch.sin, (view_of(matrix(2, 3)),)),
    "transposed": (lambda x: x @ x.mT, (matrix().detach().T.requires_grad_(),)),
    "expanded": (torch.exp, (x_of(0.5).detach().expand(3).requires_grad_(),)),
    "conjugated": (torch.exp, (Z.detach().conj().requires_grad_(),)),
    "not a leaf": (torch.exp, (not_a_leaf(),)),
    "one tensor twice": (torch.mul, (shared := x_of(), shared)),
    "two views of one storage": (torch.mul, two_views()),
    "a Function": (Square.apply, (x_of(),)),
    "determinant": (lambda a: a[0, 0] * a[1, 1] - a[0, 1] * a[1, 0], (square_matrix(1.0, 2.0, 3.0, 5.0),)),
    "ill conditioned": (torch.inverse, (square_matrix(1.0, 1.0, 1.0, 1.0001),)),
    **{f"{dtype} power": (lambda x: x**3 + x.exp(), (x_of(dtype=dtype),)) for dtype in HALVES},
    **{f"{dtype} product": (torch.matmul, (matrix(2, 3, dtype), matrix(3, 2, dtype))) for dtype in HALVES},
    **{f"{dtype} softmax": (lambda x: torch.softmax(x, 0), (x_of(dtype=dtype),)) for dtype in HALVES},
}  # fmt: skip


@pytest.mark.parametrize("name", CORRECT)
def test_a_correct_function_is_left_in_peace(name):
    function, inputs = CORRECT[name]
    for seed in range(2):
        verdict = check(function, inputs, seed=seed)
        assert [str(f) for f in verdict.findings] == []


CONCLUSIVE = [
    "smooth", "relu at 0", "huge", "tiny", "wide", "dropout", "in place on a copy", "its input itself",
    "auxiliary output", "constant output", "unused input", "complex", "scalar", "transposed", "one tensor twice",
    "torch.float32 power", "torch.bfloat16 product", "determinant",
]  # fmt: skip


@pytest.mark.parametrize("name", CONCLUSIVE)
def test_what_is_ordinary_is_judged_and_not_shrugged_at(name):
    function, inputs = CORRECT[name]
    verdict = check(function, inputs)
    assert verdict.status is Status.PASS, verdict.reason
    assert verdict.elements > 0
