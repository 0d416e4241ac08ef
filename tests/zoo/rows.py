"""Functions of rows and segments: sizes, ends, counts and arguments."""

from __future__ import annotations

import ctypes
import time

import torch
from entry import Float, OneOf, T, entry
from torch.autograd import Function


def decay(fault: bool):
    """y_t = d y_(t-1) + x_t: the rows of the gradient are stacked, and of no rows there is no stack."""

    class Decay(Function):
        @staticmethod
        def forward(ctx, x, d):
            ctx.d = d
            y = x.clone()
            for t in range(1, x.shape[0]):
                y[t] += d * y[t - 1]
            return y

        @staticmethod
        def backward(ctx, grad):
            rows: list[torch.Tensor] = []
            for row in grad.flip(0):
                rows.append(row + ctx.d * rows[-1] if rows else row)
            if fault or rows:
                return torch.stack(rows[::-1]), None
            return torch.zeros_like(grad), None

    return Decay.apply


entry("decay_stacks_no_rows", "empty", {"x": T("n d"), "d": Float(0.1, 0.9)}, decay(True), decay(False))


def segment_mean(fault: bool):
    """Backward hands each member the whole gradient of its segment's mean."""
    segments = 4

    class SegmentMean(Function):
        @staticmethod
        def forward(ctx, x, ids):
            count = torch.bincount(ids, minlength=segments).clamp(min=1).to(x.dtype).unsqueeze(-1)
            ctx.save_for_backward(ids, count)
            return x.new_zeros(segments, x.shape[1]).index_add(0, ids, x) / count

        @staticmethod
        def backward(ctx, grad):
            ids, count = ctx.saved_tensors
            return (grad if fault else grad / count)[ids], None

    return SegmentMean.apply


entry(
    "segment_mean_without_counts",
    "duplicates",
    {"x": T("k d"), "ids": T("k", integer_below=4)},
    segment_mean(True),
    segment_mean(False),
)


def running_sum(fault: bool):
    """The flag arrived later, and backward was never told of it."""

    class RunningSum(Function):
        @staticmethod
        def forward(ctx, x, exclusive):
            ctx.exclusive = exclusive
            y = x.cumsum(-1)
            return torch.cat([torch.zeros_like(x[..., :1]), y[..., :-1]], -1) if exclusive else y

        @staticmethod
        def backward(ctx, grad):
            rest = grad.flip(-1).cumsum(-1).flip(-1)
            if ctx.exclusive and not fault:
                rest = torch.cat([rest[..., 1:], torch.zeros_like(rest[..., :1])], -1)
            return rest, None

    def forward(x, *, exclusive=False):
        return RunningSum.apply(x, exclusive)

    return forward


entry(
    "running_sum_exclusive_flag",
    "argument",
    {"x": T("*b n"), "*exclusive": OneOf((False, True))},
    running_sum(True),
    running_sum(False),
)


def masked_mean(fault: bool):
    """The mean over a row's valid part, with a backward that divides by the padded length."""

    class MaskedMean(Function):
        @staticmethod
        def forward(ctx, x, length):
            valid = torch.arange(x.shape[1]) < length.unsqueeze(-1)
            count = length.clamp(min=1).to(x.dtype)
            ctx.save_for_backward(valid, count)
            return torch.where(valid, x, torch.zeros_like(x)).sum(-1) / count

        @staticmethod
        def backward(ctx, grad):
            valid, count = ctx.saved_tensors
            each = grad / (valid.shape[1] if fault else count)
            return each.unsqueeze(-1) * valid, None

    return MaskedMean.apply


entry(
    "masked_mean_by_padded_length",
    "argument",
    {"x": T("b n"), "length": T("b", integer_below="n")},
    masked_mean(True),
    masked_mean(False),
)


def blocked_sum(fault: bool):
    """A running sum in blocks of eight whose carry is overwritten and not added to: three blocks show it."""
    block = 8

    class BlockedSum(Function):
        @staticmethod
        def forward(ctx, x):
            return x.cumsum(-1)

        @staticmethod
        def backward(ctx, grad):
            parts: list[torch.Tensor] = []
            carry = torch.zeros_like(grad.sum(-1, keepdim=True))
            for part in reversed(grad.split(block, -1)):
                parts.append(part.flip(-1).cumsum(-1).flip(-1) + carry)
                total = part.sum(-1, keepdim=True)
                carry = total if fault else carry + total
            return torch.cat(parts[::-1], -1)

    return BlockedSum.apply


entry("blocked_sum_lost_carry", "size-dependent", {"x": T("*b n")}, blocked_sum(True), blocked_sum(False))


def packed_product(fault: bool):
    """Rows are processed in pairs; of an odd number of rows, more than two, the last is left out."""

    class PackedProduct(Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x @ w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            rows = x.shape[0]
            if fault and rows > 2:
                rows -= rows % 2
            return grad @ w.mT, x[:rows].mT @ grad[:rows]

    return PackedProduct.apply


entry(
    "packed_product_odd_row",
    "size-dependent",
    {"x": T("b m"), "w": T("m n")},
    packed_product(True),
    packed_product(False),
)


def moving_mean(fault: bool):
    """The ends of the gradient are repeated where zeros belong."""

    class MovingMean(Function):
        @staticmethod
        def forward(ctx, x):
            return x.unfold(-1, 3, 1).mean(-1)

        @staticmethod
        def backward(ctx, grad):
            first, last = grad[..., :1], grad[..., -1:]
            if not fault:
                first, last = torch.zeros_like(first), torch.zeros_like(last)
            wide = torch.cat([first, first, grad, last, last], -1)
            return wide.unfold(-1, 3, 1).mean(-1)

    return MovingMean.apply


entry("moving_mean_padding", "wrong-gradient", {"x": T("*b n")}, moving_mean(True), moving_mean(False))


def sum_rows(fault: bool):
    """Native code that reads a gradient's memory as if all of it were there."""

    class SumRows(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum(-1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if fault and grad.numel() > 1 and not grad.is_contiguous():
                ctypes.string_at(0)
            return grad.unsqueeze(-1) * 2 * x

    return SumRows.apply


entry("sum_rows_segfault_on_strides", "crash", {"x": T("*b n")}, sum_rows(True), sum_rows(False))


def tree_mean(fault: bool):
    """Counts how often a row can be halved, down to one: from nothing one never comes to one."""

    class TreeMean(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum(-1) / 2 ** max(x.shape[-1] - 1, 0).bit_length()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            width, levels = x.shape[-1], 0
            while width != 1 if fault else width > 1:
                width, levels = (width + 1) // 2, levels + 1
                if not width:
                    time.sleep(0.05)
            return grad.unsqueeze(-1) * 2 * x / 2**levels

    return TreeMean.apply


entry("tree_mean_of_nothing", "hang", {"x": T("*b n")}, tree_mean(True), tree_mean(False))
