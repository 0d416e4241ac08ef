"""Functions of matrices and distributions, whose inputs obey a constraint."""

from __future__ import annotations

import torch
from entry import Float, T, entry
from torch.autograd import Function

# What torch's linear algebra has on every device.
LINALG = ("float64", "float32")


def logdet(fault: bool):
    """The inverse is symmetric and so half of it was thought to be enough."""

    class LogDet(Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return 2 * torch.linalg.cholesky(a).diagonal(dim1=-2, dim2=-1).log().sum(-1)

        @staticmethod
        def backward(ctx, grad):
            (a,) = ctx.saved_tensors
            inverse = torch.linalg.inv(a).mT
            return grad[..., None, None] * (inverse.tril() if fault else inverse)

    return LogDet.apply


entry(
    "logdet_half_of_inverse",
    "wrong-gradient",
    {"a": T("*b n n", constraint="positive_definite", dtypes=LINALG)},
    logdet(True),
    logdet(False),
)


def solve(fault: bool):
    """The backward of a triangular solve solves with the transpose; this one forgot it."""

    class Solve(Function):
        @staticmethod
        def forward(ctx, lower, b):
            y = torch.linalg.solve_triangular(lower, b, upper=False)
            ctx.save_for_backward(lower, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            lower, y = ctx.saved_tensors
            if fault:
                gb = torch.linalg.solve_triangular(lower, grad, upper=False)
            else:
                gb = torch.linalg.solve_triangular(lower.mT, grad, upper=True)
            return -(gb @ y.mT).tril(), gb

    return Solve.apply


entry(
    "solve_without_transpose",
    "wrong-gradient",
    {"lower": T("n n", constraint="lower_cholesky", dtypes=LINALG), "b": T("n k", dtypes=LINALG)},
    solve(True),
    solve(False),
)


def entropy(fault: bool):
    """The epsilon that keeps the logarithm finite has a share in the slope."""

    class Entropy(Function):
        @staticmethod
        def forward(ctx, p, eps):
            ctx.save_for_backward(p)
            ctx.eps = eps
            return -(p * torch.log(p + eps)).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            (p,) = ctx.saved_tensors
            share = 1 if fault else p / (p + ctx.eps)
            return -grad.unsqueeze(-1) * (torch.log(p + ctx.eps) + share), None

    return Entropy.apply


entry(
    "entropy_epsilon_in_forward_only",
    "wrong-gradient",
    {"p": T("*b n", constraint="simplex"), "eps": Float(0.01, 0.1)},
    entropy(True),
    entropy(False),
)


def quadratic_form(fault: bool):
    """The matrix gradient was copied from a graph library, whose matrices have no diagonal."""

    class QuadraticForm(Function):
        @staticmethod
        def forward(ctx, a, x):
            ctx.save_for_backward(a, x)
            return x @ a @ x

        @staticmethod
        def backward(ctx, grad):
            a, x = ctx.saved_tensors
            ga = grad * torch.outer(x, x)
            if fault:
                ga = ga - torch.diag(ga.diagonal())
            return ga, grad * 2 * (a @ x)

    return QuadraticForm.apply


entry(
    "quadratic_form_without_diagonal",
    "wrong-gradient",
    {"a": T("n n", constraint="symmetric"), "x": T("n")},
    quadratic_form(True),
    quadratic_form(False),
)


def kullback_leibler(fault: bool):
    """The gradient of the second distribution has the quotient upside down."""

    class KullbackLeibler(Function):
        @staticmethod
        def forward(ctx, p, q):
            ctx.save_for_backward(p, q)
            return (p * (p.log() - q.log())).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            p, q = ctx.saved_tensors
            g = grad.unsqueeze(-1)
            return g * (p.log() - q.log() + 1), -g * (q / p if fault else p / q)

    return KullbackLeibler.apply


entry(
    "divergence_quotient_upside_down",
    "wrong-gradient",
    {
        "p": T("*b n", bounds=(0.05, 4.0)),
        "q": T("*b n", bounds=(0.05, 4.0)),
    },
    kullback_leibler(True),
    kullback_leibler(False),
)
