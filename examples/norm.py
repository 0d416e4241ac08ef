"""Normalisations over the last dimension."""

from __future__ import annotations

import torch
from torch.autograd import Function

import gradfuzz
from gradfuzz import strategies as gst

EPS = 1e-5


def inverse_rms(x):
    return torch.rsqrt((x * x).mean(-1, keepdim=True) + EPS)


class RmsNorm(Function):
    """x * weight / rms(x); the inverse root is computed again in backward, where it is part of the graph."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x * inverse_rms(x) * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        inverse = inverse_rms(x)
        unit = x * inverse
        g = grad * weight
        gx = inverse * (g - unit * (g * unit).mean(-1, keepdim=True))
        return gx, (grad * unit).sum_to_size(weight.shape)


class FusedRmsNorm(Function):
    """The same as a fused kernel does it: forward hands the inverse root over to backward.

    The mistake: the inverse root is no input and no output, so the second derivative takes it for a constant.
    """

    @staticmethod
    def forward(ctx, x, weight):
        inverse = inverse_rms(x)
        ctx.save_for_backward(x, weight, inverse)
        return x * inverse * weight

    @staticmethod
    def backward(ctx, grad):
        x, weight, inverse = ctx.saved_tensors
        unit = x * inverse
        g = grad * weight
        gx = inverse * (g - unit * (g * unit).mean(-1, keepdim=True))
        return gx, (grad * unit).sum_to_size(weight.shape)


class CenteredNorm(Function):
    """(x - mean) / sqrt(variance + eps).

    The mistake: the gradient that flows through the variance is left out, only the mean's is there.
    """

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        centered = x - x.mean(-1, keepdim=True)
        return centered * inverse_rms(centered)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        centered = x - x.mean(-1, keepdim=True)
        g = grad * inverse_rms(centered)
        return g - g.mean(-1, keepdim=True)


@gradfuzz.target(x=gst.tensors("*b n"), weight=gst.tensors("n"))
def rms_norm(x, weight):
    return RmsNorm.apply(x, weight)


@gradfuzz.target(x=gst.tensors("*b n"), weight=gst.tensors("n"))
def fused_rms_norm(x, weight):
    return FusedRmsNorm.apply(x, weight)


@gradfuzz.target(x=gst.tensors("*b n"))
def centered_norm(x):
    return CenteredNorm.apply(x)
