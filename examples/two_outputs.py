"""Functions of two outputs, of which a caller may use one."""

from __future__ import annotations

import torch
from torch.autograd import Function

import gradfuzz
from gradfuzz import strategies as gst


class Rotation(Function):
    """Rotate the point (x, y) by an angle; an output nobody used has no gradient, which is None."""

    @staticmethod
    def forward(ctx, x, y, angle):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x, y, angle)
        c, s = torch.cos(angle), torch.sin(angle)
        return c * x - s * y, s * x + c * y

    @staticmethod
    def backward(ctx, gu, gv):
        x, y, angle = ctx.saved_tensors
        c, s = torch.cos(angle), torch.sin(angle)
        gu = torch.zeros_like(x) if gu is None else gu
        gv = torch.zeros_like(x) if gv is None else gv
        return c * gu + s * gv, c * gv - s * gu, gu * (-s * x - c * y) + gv * (c * x - s * y)


class MeanAndSpread(Function):
    """A row's mean and mean square.

    The mistake: backward takes it that either both gradients are there or none is.
    """

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.mean(-1), (x * x).mean(-1)

    @staticmethod
    def backward(ctx, g_mean, g_square):
        (x,) = ctx.saved_tensors
        return (g_mean.unsqueeze(-1) + 2 * x * g_square.unsqueeze(-1)) / x.shape[-1]


class Gate(Function):
    """A gated value and the gate itself.

    The mistake: without a gradient for the gate, backward returns early and forgets that the value depends on the
    gate too.
    """

    @staticmethod
    def forward(ctx, value, score):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(value, score)
        gate = torch.sigmoid(score)
        return value * gate, gate

    @staticmethod
    def backward(ctx, g_value, g_gate):
        value, score = ctx.saved_tensors
        gate = torch.sigmoid(score)
        slope = gate * (1 - gate)
        if g_gate is None:
            return None if g_value is None else g_value * gate, None
        if g_value is None:
            return None, g_gate * slope
        return g_value * gate, (g_value * value + g_gate) * slope


@gradfuzz.target(x=gst.tensors("*s"), y=gst.tensors("*s"), angle=gst.tensors("*s", bounds=(-4.0, 4.0)))
def rotation(x, y, angle):
    return Rotation.apply(x, y, angle)


@gradfuzz.target(x=gst.tensors("*b n"))
def mean_and_spread(x):
    return MeanAndSpread.apply(x)


@gradfuzz.target(value=gst.tensors("*s"), score=gst.tensors("*s"))
def gate(value, score):
    return Gate.apply(value, score)
