"""The linear recurrence y_t = a_t * y_(t-1) + x_t, down the rows."""

from __future__ import annotations

import torch
from torch.autograd import Function

import gradfuzz
from gradfuzz import strategies as gst


def run(a, x):
    y = torch.zeros_like(x)
    for t in range(x.shape[0]):
        y[t] = x[t] if t == 0 else a[t] * y[t - 1] + x[t]
    return y


def run_back(a, grad):
    """The recurrence of the gradient: g_t = grad_t + a_(t+1) * g_(t+1)."""
    rows = []
    for t in reversed(range(grad.shape[0])):
        rows.append(grad[t] + a[t + 1] * rows[-1] if rows else grad[t])
    return torch.stack(rows[::-1]) if rows else torch.zeros_like(grad)


def shifted(y):
    """The state before each step."""
    return torch.cat([torch.zeros_like(y[:1]), y[:-1]])


class Scan(Function):
    """The state before each step comes from the output, which autograd knows."""

    @staticmethod
    def forward(ctx, a, x):
        y = run(a, x)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        a, y = ctx.saved_tensors
        g = run_back(a, grad)
        return g * shifted(y), g


class ScanWithState(Function):
    """The same, with the shifted states written once in forward.

    The mistake: the shifted states are an intermediate, and so constants to the second derivative.
    """

    @staticmethod
    def forward(ctx, a, x):
        y = run(a, x)
        ctx.save_for_backward(a, shifted(y))
        return y

    @staticmethod
    def backward(ctx, grad):
        a, before = ctx.saved_tensors
        g = run_back(a, grad)
        return g * before, g


class ScanOffByOne(Function):
    """The same with a backward written by analogy.

    The mistake: the gradient decays by a_t where it should by a_(t+1); with equal decays nobody sees it.
    """

    @staticmethod
    def forward(ctx, a, x):
        y = run(a, x)
        ctx.save_for_backward(a, y)
        return y

    @staticmethod
    def backward(ctx, grad):
        a, y = ctx.saved_tensors
        g = run_back(torch.cat([a[:1], a[:-1]]), grad)
        return g * shifted(y), g


@gradfuzz.target(a=gst.tensors("t d"), x=gst.tensors("t d"))
def scan(a, x):
    return Scan.apply(a, x)


@gradfuzz.target(a=gst.tensors("t d"), x=gst.tensors("t d"))
def scan_with_state(a, x):
    return ScanWithState.apply(a, x)


@gradfuzz.target(a=gst.tensors("t d"), x=gst.tensors("t d"))
def scan_off_by_one(a, x):
    return ScanOffByOne.apply(a, x)
