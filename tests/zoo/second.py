"""Functions whose first derivative is right and whose second is wrong, missing or refused."""

from __future__ import annotations

import numpy as np
import torch
from entry import Float, T, entry
from torch.autograd import Function


def log1p_square(fault: bool):
    """A square is missing in the hand-written second derivative."""

    class Log1pSquare(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.log1p(x * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return Log1pSquareBackward.apply(grad, x)

    class Log1pSquareBackward(Function):
        @staticmethod
        def forward(ctx, grad, x):
            ctx.save_for_backward(grad, x)
            return grad * 2 * x / (1 + x * x)

        @staticmethod
        def backward(ctx, grad2):
            grad, x = ctx.saved_tensors
            a = 1 / (1 + x * x)
            curvature = 2 * (1 - x * x) * a
            if not fault:
                curvature = curvature * a
            return grad2 * 2 * x * a, grad2 * grad * curvature

    return Log1pSquare.apply


entry("log1p_square_curvature", "wrong-second-derivative", {"x": T("*s")}, log1p_square(True), log1p_square(False))


def bilinear(fault: bool):
    """x W z a row: one of the two terms of the weight's second derivative was forgotten."""

    class Bilinear(Function):
        @staticmethod
        def forward(ctx, x, w, z):
            ctx.save_for_backward(x, w, z)
            return ((x @ w) * z).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            return BilinearBackward.apply(grad, *ctx.saved_tensors)

    class BilinearBackward(Function):
        @staticmethod
        def forward(ctx, grad, x, w, z):
            ctx.save_for_backward(grad, x, w, z)
            g = grad.unsqueeze(-1)
            return g * (z @ w.mT), x.mT @ (g * z), g * (x @ w)

        @staticmethod
        def backward(ctx, ggx, ggw, ggz):
            grad, x, w, z = ctx.saved_tensors
            g = grad.unsqueeze(-1)
            g_grad = ((ggx @ w + x @ ggw) * z).sum(-1) + ((x @ w) * ggz).sum(-1)
            g_w = ggx.mT @ (g * z)
            if not fault:
                g_w = g_w + x.mT @ (g * ggz)
            return g_grad, g * (z @ ggw.mT + ggz @ w.mT), g_w, g * (ggx @ w + x @ ggw)

    return Bilinear.apply


entry(
    "bilinear_second_term_of_weight",
    "wrong-second-derivative",
    {"x": T("b m"), "w": T("m n"), "z": T("b n")},
    bilinear(True),
    bilinear(False),
)


def pooling(fault: bool):
    """The attention weights of forward are kept for backward, where they count as constants."""

    class Pooling(Function):
        @staticmethod
        def forward(ctx, score, value):
            weights = torch.softmax(score, -1)
            ctx.save_for_backward(score, value)
            ctx.weights = weights
            return (weights * value).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            score, value = ctx.saved_tensors
            weights = ctx.weights if fault else torch.softmax(score, -1)
            g = grad.unsqueeze(-1) * weights
            mean = (weights * value).sum(-1, keepdim=True)
            return g * (value - mean), g

    return Pooling.apply


entry(
    "pooling_weights_on_ctx",
    "missing-second-order-term",
    {"score": T("*b n"), "value": T("*b n")},
    pooling(True),
    pooling(False),
)


def into_ball(fault: bool):
    """x / sqrt(1 + |x|^2): the radius saved in forward carries no graph."""

    def radius(x):
        return torch.sqrt(1 + (x * x).sum(-1, keepdim=True))

    class IntoBall(Function):
        @staticmethod
        def forward(ctx, x):
            r = radius(x)
            ctx.save_for_backward(x, r)
            return x / r

        @staticmethod
        def backward(ctx, grad):
            x, r = ctx.saved_tensors
            if not fault:
                r = radius(x)
            y = x / r
            return (grad - y * (grad * y).sum(-1, keepdim=True)) / r

    return IntoBall.apply


entry("into_ball_saved_radius", "missing-second-order-term", {"x": T("*b n")}, into_ball(True), into_ball(False))


def softsign(fault: bool):
    """Backward is decorated with no_grad, "because gradients need no gradients"."""

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        d = 1 + x.abs()
        return grad / d / d

    class Softsign(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x / (1 + x.abs())

    Softsign.backward = staticmethod(torch.no_grad()(backward) if fault else backward)
    return Softsign.apply


entry("softsign_backward_without_grad", "detached", {"x": T("*s")}, softsign(True), softsign(False))


def lerp(fault: bool):
    """The weight's gradient is computed from `.data`."""

    class Lerp(Function):
        @staticmethod
        def forward(ctx, a, b, w):
            ctx.save_for_backward(a, b, w)
            return a + w * (b - a)

        @staticmethod
        def backward(ctx, grad):
            a, b, w = ctx.saved_tensors
            gw = grad * (b.data - a.data) if fault else grad * (b - a)
            return grad * (1 - w), grad * w, gw

    return Lerp.apply


entry(
    "lerp_weight_from_data",
    "detached",
    {"a": T("*s"), "b": T("*s"), "w": T("*s")},
    lerp(True),
    lerp(False),
)


def expm1(fault: bool):
    """Backward computes in numpy, which refuses tensors that ask for a gradient."""

    class Expm1(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return torch.expm1(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if fault:
                return torch.from_numpy(np.asarray(grad.numpy() * np.exp(x.detach().numpy())))
            return grad * x.exp()

    return Expm1.apply


entry("expm1_through_numpy", "not-twice-differentiable", {"x": T("*s")}, expm1(True), expm1(False))


def summary(fault: bool):
    """Backward gives up as soon as either output has no gradient."""

    class Summary(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            return torch.logsumexp(x, -1), x.mean(-1)

        @staticmethod
        def backward(ctx, g_lse, g_mean):
            (x,) = ctx.saved_tensors
            if fault and (g_lse is None or g_mean is None):
                return None
            total = torch.zeros_like(x)
            if g_lse is not None:
                total = total + g_lse.unsqueeze(-1) * torch.softmax(x, -1)
            if g_mean is not None:
                total = total + g_mean.unsqueeze(-1) / x.shape[-1]
            return total

    return Summary.apply


entry("summary_both_or_nothing", "undefined-gradient", {"x": T("*b n")}, summary(True), summary(False))


def halves(fault: bool):
    """Two outputs' gradients are concatenated; one that is undefined cannot be."""

    class Halves(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(x)
            k = x.shape[0] // 2
            return x[:k] ** 2, x[k:] ** 3

        @staticmethod
        def backward(ctx, g_head, g_tail):
            (x,) = ctx.saved_tensors
            k = x.shape[0] // 2
            head, tail = x[:k], x[k:]
            if not fault:
                g_head = torch.zeros_like(head) if g_head is None else g_head
                g_tail = torch.zeros_like(tail) if g_tail is None else g_tail
            return torch.cat([g_head, g_tail]) * torch.cat([2 * head, 3 * tail**2])

    return Halves.apply


entry("halves_concatenated", "undefined-gradient", {"x": T("n *b")}, halves(True), halves(False))


def weighted(fault: bool):
    """The backward of the backward does arithmetic on a gradient that may be undefined."""

    class Weighted(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w

        @staticmethod
        def backward(ctx, grad):
            return WeightedBackward.apply(grad, *ctx.saved_tensors)

    class WeightedBackward(Function):
        @staticmethod
        def forward(ctx, grad, x, w):
            ctx.set_materialize_grads(False)
            ctx.save_for_backward(grad, x, w)
            return grad * w, grad * x

        @staticmethod
        def backward(ctx, ggx, ggw):
            grad, x, w = ctx.saved_tensors
            if fault:
                return ggx * w + ggw * x, grad * ggw, grad * ggx
            zero = torch.zeros_like(grad)
            ggx = zero if ggx is None else ggx
            ggw = zero if ggw is None else ggw
            return ggx * w + ggw * x, grad * ggw, grad * ggx

    return Weighted.apply


entry(
    "weighted_undefined_at_second_order",
    "undefined-gradient",
    {"x": T("*s"), "w": T("*s")},
    weighted(True),
    weighted(False),
)


def temperature(fault: bool):
    """A scalar's gradient is the sum over all it was broadcast to, and not their mean."""

    class Temperature(Function):
        @staticmethod
        def forward(ctx, x, t):
            ctx.save_for_backward(x, t)
            return x * torch.exp(t)

        @staticmethod
        def backward(ctx, grad):
            x, t = ctx.saved_tensors
            g = grad * torch.exp(t)
            return g, (g * x).mean() if fault else (g * x).sum()

    return Temperature.apply


entry(
    "temperature_mean_for_sum",
    "broadcast",
    {"x": T("*s"), "t": T("", bounds=(-3.0, 3.0))},
    temperature(True),
    temperature(False),
)


def softclip(fault: bool):
    """The second derivative has the wrong sign left of the middle."""

    class SoftClip(Function):
        @staticmethod
        def forward(ctx, x, width):
            ctx.save_for_backward(x)
            ctx.width = width
            return width * torch.tanh(x / width)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return SoftClipBackward.apply(grad, x, ctx.width), None

    class SoftClipBackward(Function):
        @staticmethod
        def forward(ctx, grad, x, width):
            ctx.save_for_backward(grad, x)
            ctx.width = width
            y = torch.tanh(x / width)
            return grad * (1 - y * y)

        @staticmethod
        def backward(ctx, grad2):
            grad, x = ctx.saved_tensors
            y = torch.tanh(x / ctx.width)
            slope = 1 - y * y
            return grad2 * slope, -2 * grad2 * grad * (y.abs() if fault else y) * slope / ctx.width, None

    return SoftClip.apply


entry(
    "softclip_curvature_of_magnitude",
    "wrong-second-derivative",
    {"x": T("*s"), "width": Float(0.5, 3.0)},
    softclip(True),
    softclip(False),
)
