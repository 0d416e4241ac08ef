"""Rows of a table, taken by index; a row may be taken twice."""

from __future__ import annotations

from torch.autograd import Function

import gradfuzz
from gradfuzz import strategies as gst


class Rows(Function):
    """table[index], with the gradients of equal indices added up."""

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        return grad.new_zeros(ctx.shape).index_add(0, index, grad), None


class RowsInPlace(Function):
    """The same in numpy's manner.

    The mistake: `out[index] += grad` reads, adds and writes back, so of two equal indices one is lost.
    """

    @staticmethod
    def forward(ctx, table, index):
        ctx.save_for_backward(index)
        ctx.shape = table.shape
        return table[index]

    @staticmethod
    def backward(ctx, grad):
        (index,) = ctx.saved_tensors
        out = grad.new_zeros(ctx.shape)
        out[index] += grad
        return out, None


class ScaledRows(Function):
    """table[index] * scale, a scale a row.

    The mistake: the gradient of the scale is averaged over the row that it multiplies, and should be summed.
    """

    @staticmethod
    def forward(ctx, table, scale, index):
        ctx.save_for_backward(table, scale, index)
        return table[index] * scale.unsqueeze(-1)

    @staticmethod
    def backward(ctx, grad):
        table, scale, index = ctx.saved_tensors
        g_table = grad.new_zeros(table.shape).index_add(0, index, grad * scale.unsqueeze(-1))
        g_scale = (grad * table[index]).mean(-1) if table.shape[-1] else grad.new_zeros(scale.shape)
        return g_table, g_scale, None


@gradfuzz.target(table=gst.tensors("n d"), index=gst.indices("k", below="n"))
def rows(table, index):
    return Rows.apply(table, index)


@gradfuzz.target(table=gst.tensors("n d"), index=gst.indices("k", below="n"))
def rows_in_place(table, index):
    return RowsInPlace.apply(table, index)


@gradfuzz.target(table=gst.tensors("n d"), scale=gst.tensors("k"), index=gst.indices("k", below="n"))
def scaled_rows(table, scale, index):
    return ScaledRows.apply(table, scale, index)
