"""Losses fused into one forward and one backward."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch.autograd import Function

import gradfuzz
from gradfuzz import strategies as gst


def reduced(loss, reduction):
    if reduction == "mean":
        return loss.mean()
    return loss.sum() if reduction == "sum" else loss


class SmoothL1(Function):
    """Quadratic near zero, linear further out, and a mean or a sum of it.

    The mistake: the mean's backward is the sum's. Training hides it, for it only scales the learning rate.
    """

    @staticmethod
    def forward(ctx, prediction, wanted, reduction):
        ctx.save_for_backward(prediction, wanted)
        gap = prediction - wanted
        loss = torch.where(gap.abs() < 1, 0.5 * gap * gap, gap.abs() - 0.5)
        return reduced(loss, reduction)

    @staticmethod
    def backward(ctx, grad):
        prediction, wanted = ctx.saved_tensors
        slope = grad * (prediction - wanted).clamp(-1, 1)
        return slope, -slope, None


class SmoothCrossEntropy(Function):
    """Cross entropy against a row's label, a part `smoothing` of it spread over all classes; the mean over rows."""

    @staticmethod
    def forward(ctx, logits, label, smoothing):
        ctx.save_for_backward(logits, label)
        ctx.smoothing = smoothing
        log_p = torch.log_softmax(logits, -1)
        picked = log_p.gather(-1, label.unsqueeze(-1)).squeeze(-1)
        rows = max(logits.shape[0], 1)
        return -((1 - smoothing) * picked + smoothing * log_p.mean(-1)).sum() / rows

    @staticmethod
    def backward(ctx, grad):
        logits, label = ctx.saved_tensors
        rows, classes = logits.shape
        wanted = torch.full_like(logits, ctx.smoothing / classes)
        wanted = wanted.scatter_add(-1, label.unsqueeze(-1), torch.full_like(logits[:, :1], 1 - ctx.smoothing))
        return grad * (torch.softmax(logits, -1) - wanted) / max(rows, 1), None, None


class Focal(Function):
    """(1 - p)^2 * -log p, where p is the sigmoid of a logit that should be large.

    The mistake: the modulating factor (1 - p)^2 is treated as a weight, though it depends on the logit too.
    """

    @staticmethod
    def forward(ctx, logit):
        ctx.save_for_backward(logit)
        return torch.sigmoid(-logit) ** 2 * torch.nn.functional.softplus(-logit)

    @staticmethod
    def backward(ctx, grad):
        (logit,) = ctx.saved_tensors
        missing = torch.sigmoid(-logit)
        return -grad * missing**3


@gradfuzz.target(
    prediction=gst.tensors("n m"), wanted=gst.tensors("n m"), reduction=st.sampled_from(["none", "sum", "mean"])
)
def smooth_l1(prediction, wanted, reduction):
    return SmoothL1.apply(prediction, wanted, reduction)


@gradfuzz.target(
    logits=gst.tensors("n classes"), label=gst.indices("n", below="classes"), smoothing=st.sampled_from([0.0, 0.1])
)
def smooth_cross_entropy(logits, label, smoothing):
    return SmoothCrossEntropy.apply(logits, label, smoothing)


@gradfuzz.target(logit=gst.tensors("*s"))
def focal(logit):
    return Focal.apply(logit)
