"""Functions whose derivative is wrong in some region only: far out, at ties, in one dtype."""

from __future__ import annotations

import math

import torch
from entry import Float, T, entry
from torch.autograd import Function


def clamped_logit(fault: bool):
    """Outside the clamp the function is constant; its slope there is not that of the clamped value."""

    class ClampedLogit(Function):
        @staticmethod
        def forward(ctx, p, eps):
            ctx.save_for_backward(p)
            ctx.eps = eps
            z = p.clamp(eps, 1 - eps)
            return torch.log(z) - torch.log1p(-z)

        @staticmethod
        def backward(ctx, grad):
            (p,) = ctx.saved_tensors
            z = p.clamp(ctx.eps, 1 - ctx.eps)
            slope = 1 / (z * (1 - z))
            if not fault:
                inside = (p >= ctx.eps) & (p <= 1 - ctx.eps)
                slope = torch.where(inside, slope, torch.zeros_like(slope))
            return grad * slope, None

    return ClampedLogit.apply


entry(
    "clamped_logit_outside",
    "rare-region",
    {"p": T("*s", constraint="unit_interval"), "eps": Float(0.02, 0.2)},
    clamped_logit(True),
    clamped_logit(False),
)


def capped_exp(fault: bool):
    """Forward stops growing at thirty, backward does not know."""
    cap = 30.0

    class CappedExp(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.clamp(max=cap).exp()
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            slope = y if fault else torch.where(x <= cap, y, torch.zeros_like(y))
            return grad * slope

    return CappedExp.apply


entry("capped_exp_beyond_cap", "rare-region", {"x": T("*s")}, capped_exp(True), capped_exp(False))


def log_add_exp(fault: bool):
    """A guard against inf - inf answers one for *any* two equal inputs."""

    class LogAddExp(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return torch.logaddexp(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            equal = (a == b) if fault else (a == b) & a.isinf()
            one = torch.ones_like(grad)
            gap = torch.where(equal, torch.zeros_like(a), a - b)
            return (
                grad * torch.where(equal, one, torch.sigmoid(gap)),
                grad * torch.where(equal, one, torch.sigmoid(-gap)),
            )

    return LogAddExp.apply


entry("logaddexp_of_equals", "rare-region", {"a": T("*s"), "b": T("*s")}, log_add_exp(True), log_add_exp(False))


def row_max(fault: bool):
    """Each of several equal maxima receives the whole gradient."""

    class RowMax(Function):
        @staticmethod
        def forward(ctx, x):
            y = x.amax(-1)
            ctx.save_for_backward(x, y)
            return y

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            hit = (x == y.unsqueeze(-1)).to(grad.dtype)
            if not fault:
                hit = hit / hit.sum(-1, keepdim=True).clamp(min=1)
            return grad.unsqueeze(-1) * hit

    return RowMax.apply


entry("row_max_every_tie", "rare-region", {"x": T("*b n")}, row_max(True), row_max(False))


def exprel(fault: bool):
    """(e^x - 1) / x: the branch that is not taken near zero divides by zero, and zero times inf is nan."""
    series = [1 / math.factorial(k + 1) for k in range(28)]

    def forward(x):
        small = x.abs() < 2
        near = torch.where(small, x, torch.zeros_like(x))
        far = x if fault else torch.where(small, torch.full_like(x, 2), x)
        total = torch.zeros_like(x)
        for coefficient in reversed(series):
            total = total * near + coefficient
        return torch.where(small, total, torch.expm1(far) / far)

    return forward


entry("exprel_untaken_branch", "nonfinite", {"x": T("*s")}, exprel(True), exprel(False))


def inverse_softplus(fault: bool):
    """e^x / (e^x - 1) is right until e^x overflows, where it is inf / inf."""

    class InverseSoftplus(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x + torch.log(-torch.expm1(-x))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if fault:
                return grad * x.exp() / x.expm1()
            return grad / -torch.expm1(-x)

    return InverseSoftplus.apply


entry(
    "inverse_softplus_overflow",
    "nonfinite",
    {"x": T("*s", bounds=(0.05, 1000.0))},
    inverse_softplus(True),
    inverse_softplus(False),
)


def gelu_by_dtype(fault: bool):
    """The fast float32 kernel has the slope of the tanh approximation under the value of the exact one."""

    class Gelu(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.nn.functional.gelu(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if fault and x.dtype == torch.float32:
                k = math.sqrt(2 / math.pi)
                t = torch.tanh(k * (x + 0.044715 * x**3))
                return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * k * (1 + 0.134145 * x * x))
            cdf = 0.5 * (1 + torch.erf(x / math.sqrt(2)))
            return grad * (cdf + x * torch.exp(-0.5 * x * x) / math.sqrt(2 * math.pi))

    return Gelu.apply


entry("gelu_float32_slope", "precision", {"x": T("*s")}, gelu_by_dtype(True), gelu_by_dtype(False))


def leaky(fault: bool):
    """The slope went through a float32 tensor and came back as 0.10000000149."""
    slope = torch.tensor(0.1, dtype=torch.float32).item() if fault else 0.1

    class Leaky(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.where(x > 0, x, 0.1 * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return torch.where(x > 0, grad, slope * grad)

    return Leaky.apply


entry("leaky_slope_in_float32", "precision", {"x": T("*s", dtypes=("float64",))}, leaky(True), leaky(False))


def attention_score(fault: bool):
    """The factors of a dot product pass through bfloat16 in backward, to save memory traffic."""

    class Score(Function):
        @staticmethod
        def forward(ctx, q, k):
            ctx.save_for_backward(q, k)
            return (q * k).sum(-1) ** 2

        @staticmethod
        def backward(ctx, grad):
            q, k = ctx.saved_tensors
            product = q * k
            if fault and product.dtype == torch.float32:
                product = product.bfloat16().to(product.dtype)
            g = (grad * 2 * product.sum(-1)).unsqueeze(-1)
            return g * k, g * q

    return Score.apply


entry(
    "score_products_in_bfloat16",
    "precision",
    {"q": T("*b n", dtypes=("float32",)), "k": T("*b n", dtypes=("float32",))},
    attention_score(True),
    attention_score(False),
)
