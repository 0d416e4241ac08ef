"""Activations with a backward of their own."""

from __future__ import annotations

import torch
from hypothesis import strategies as st
from torch.autograd import Function

import gradfuzz
from gradfuzz import strategies as gst


class Swish(Function):
    """x * sigmoid(x), keeping the input alone and not the sigmoid, to save memory."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * (s + x * (s * (1 - s)))


class SwishCached(Function):
    """The same, with the sigmoid of forward kept because it is dear.

    The mistake: what forward computed and kept has no graph. The first derivative is right, and the
    second treats the sigmoid as a constant.
    """

    @staticmethod
    def forward(ctx, x):
        s = torch.sigmoid(x)
        ctx.save_for_backward(x, s)
        return x * s

    @staticmethod
    def backward(ctx, grad):
        x, s = ctx.saved_tensors
        return grad * (s + x * (s * (1 - s)))


class Celu(Function):
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0).

    The mistake: on the negative branch the chain rule's 1 / alpha cancels the factor alpha; here the factor
    was kept, as it has to be for ELU.
    """

    @staticmethod
    def forward(ctx, x, alpha):
        ctx.save_for_backward(x)
        ctx.alpha = alpha
        return torch.where(x > 0, x, alpha * torch.expm1(x.clamp(max=0) / alpha))

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        below = ctx.alpha * torch.exp(x.clamp(max=0) / ctx.alpha)
        return torch.where(x > 0, grad, grad * below), None


@gradfuzz.target(x=gst.tensors("*s"))
def swish(x):
    return Swish.apply(x)


@gradfuzz.target(x=gst.tensors("*s"))
def swish_cached(x):
    return SwishCached.apply(x)


@gradfuzz.target(x=gst.tensors("*s"), alpha=st.sampled_from([0.5, 1.0, 2.0]))
def celu(x, alpha):
    return Celu.apply(x, alpha)
