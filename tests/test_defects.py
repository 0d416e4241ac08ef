"""Defects that stand in torch 2.13: each is reported by name, order and mode when its trigger is handed over."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import Function

from gradfuzz.checker import check

pytestmark = pytest.mark.skipif(not torch.__version__.startswith("2.13."), reason="other versions have other defects")


def real(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


class SavesAnIntermediate(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.factor = 2 * x
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g * ctx.factor


class WithJvp(Function):
    @staticmethod
    def forward(x):
        return torch.sinh(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.cosh(x)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * torch.cosh(x)


def through_lower(matrix):
    """Any square matrix, as a lower triangle with a positive diagonal."""
    return torch.cholesky_inverse(torch.tril(matrix, -1) + torch.diag(torch.exp(torch.diagonal(matrix))))


MATRIX = real([1.0, 2.0], [3.0, 5.0])
TRIGGERS = {
    "det, forward twice": (torch.linalg.det, (MATRIX,), ("wrong-second-derivative", 2, "fwd-fwd")),
    "det, reverse over forward": (torch.linalg.det, (MATRIX,), ("wrong-second-derivative", 2, "rev-fwd")),
    "layer_norm": (
        lambda x: F.layer_norm(x, (3,)),
        (real([1.0, 2.0, 4.0]),),
        ("wrong-second-derivative", 2, "fwd-fwd"),
    ),
    "cumprod with a zero, forward twice": (
        lambda x: torch.cumprod(x, 0),
        (real(2.0, 0.0, 3.0),),
        ("wrong-second-derivative", 2, "fwd-fwd"),
    ),
    "cumprod with a zero, reverse over forward": (
        lambda x: torch.cumprod(x, 0),
        (real(2.0, 0.0, 3.0),),
        ("nonfinite", 2, "rev-fwd"),
    ),
    "cholesky_inverse": (through_lower, (real([0.5, 0.0], [1.5, -0.25]),), ("forward-mode", 1, "fwd")),
    "scatter_reduce": (
        lambda x, s: x.scatter_reduce(0, torch.tensor([0, 1, 0]), s, "prod"),
        (real(1.0, 2.0, 3.0), real(2.0, 3.0, 4.0)),
        ("forward-mode", 1, "fwd"),
    ),
    "logaddexp": (torch.logaddexp, (real(0.0), real(800.0)), ("nonfinite", 2, "rev-rev")),
    "sinc": (torch.sinc, (real(0.0),), ("nonfinite", 2, "rev-rev")),
    "pow": (torch.pow, (real(0.0), real(2.0)), ("nonfinite", 2, "rev-rev")),
    "ldexp": (lambda x: torch.ldexp(x, torch.tensor([-1])), (real(3.0),), ("wrong-gradient", 1, "rev")),
    "det of a singular matrix": (torch.linalg.det, (real([1.0, 2.0], [2.0, 4.0]),), ("wrong-gradient", 1, "rev")),
    "a Function with jvp": (WithJvp.apply, (real(0.5, 1.0),), ("wrong-second-derivative", 2, "fwd-fwd")),
    "a saved intermediate": (
        SavesAnIntermediate.apply,
        (real(0.5, 1.0),),
        ("wrong-second-derivative", 2, "rev-rev"),
    ),
    "cdist": (torch.cdist, (MATRIX, real([0.0, 1.0], [5.0, 2.0])), ("not-differentiable", 2, "rev-rev")),
    "pdist": (F.pdist, (real([1.0, 2.0], [3.0, 1.0], [0.0, 4.0]),), ("not-differentiable", 2, "rev-rev")),
}


@pytest.mark.parametrize("name", TRIGGERS)
@pytest.mark.parametrize("seed", range(2))
def test_a_defect_of_torch_is_reported_for_what_it_is(name, seed):
    function, inputs, expected = TRIGGERS[name]
    found = [(f.symptom.value, f.order, f.mode) for f in check(function, inputs, seed=seed).findings]
    assert expected in found


# What is not a defect: kinks, ties, infinite slopes, masks, seeds, rounding, the edge of a domain.
PEACE = {
    "relu at 0": (torch.relu, (real(0.0, 1.0),)),
    "abs at 0": (torch.abs, (real(0.0, -1.0),)),
    "ties in amax": (torch.amax, (real(2.0, 2.0, 1.0),)),
    "ties in sort": (lambda x: torch.sort(x)[0], (real(2.0, 2.0, 1.0),)),
    "ties in median": (torch.median, (real(2.0, 2.0, 2.0),)),
    "an infinite slope": (torch.sqrt, (real(0.0, 1.0),)),
    "a symmetric matrix": (lambda a: torch.linalg.eigvalsh((a + a.T) / 2), (real([2.0, 0.5], [0.5, 1.0]),)),
    "dropout": (lambda x: F.dropout(x, 0.5), (real(1.0, 2.0, 3.0, 4.0),)),
    "a padding index": (
        lambda w: F.embedding(torch.tensor([0, 1, 2]), w, padding_idx=None),
        (real([1.0, 2.0], [3.0, 4.0], [5.0, 6.0]),),
    ),
    "a tail that underflows beside 1": (torch.sigmoid, (real(40.0, 1.0),)),
    "outside the domain": (torch.log, (real(-1.0),)),
}


@pytest.mark.parametrize("name", PEACE)
@pytest.mark.parametrize("seed", range(3))
def test_what_is_no_defect_is_left_in_peace(name, seed):
    function, inputs = PEACE[name]
    assert check(function, inputs, seed=seed).findings == ()


def test_an_untaken_branch_that_is_nan_is_reported_and_never_as_a_wrong_gradient():
    verdict = check(lambda x: torch.where(x > 0, torch.sqrt(x), x), (real(-1.0, 2.0),))
    assert {f.symptom.value for f in verdict.findings} == {"nonfinite"}
