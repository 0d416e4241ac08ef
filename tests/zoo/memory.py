"""Functions that go wrong over memory, layout, state or repetition."""

from __future__ import annotations

import torch
from entry import Float, T, entry
from torch.autograd import Function


def threshold(fault: bool):
    """Backward masks the gradient it was given in place."""

    class Threshold(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.clamp(min=0)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad.masked_fill_(x <= 0, 0) if fault else grad.masked_fill(x <= 0, 0)

    return Threshold.apply


entry("threshold_masks_in_place", "mutation", {"x": T("*s")}, threshold(True), threshold(False))


def leaky_mask(fault: bool):
    """The mask kept from forward is reused as the buffer of the result, so a second backward finds it changed."""

    class LeakyMask(Function):
        @staticmethod
        def forward(ctx, x, slope):
            ctx.mask = torch.where(x > 0, torch.ones_like(x), torch.full_like(x, slope))
            return x * ctx.mask

        @staticmethod
        def backward(ctx, grad):
            if fault:
                return ctx.mask.mul_(grad), None
            return grad * ctx.mask, None

    return LeakyMask.apply


entry(
    "leaky_mask_as_buffer",
    "mutation",
    {"x": T("*s"), "slope": Float(0.05, 0.5)},
    leaky_mask(True),
    leaky_mask(False),
)


def take(fault: bool):
    """A workspace kept between calls is added to and never cleared."""
    workspaces: dict[tuple[object, ...], torch.Tensor] = {}

    class Take(Function):
        @staticmethod
        def forward(ctx, x, index):
            ctx.save_for_backward(index)
            ctx.size = x.shape
            return x[index]

        @staticmethod
        def backward(ctx, grad):
            (index,) = ctx.saved_tensors
            space = grad.new_zeros(ctx.size)
            if fault:
                space = workspaces.setdefault((ctx.size, grad.dtype), space)
            out = space.index_add(0, index, grad)
            space.copy_(out.detach())
            return out, None

    return Take.apply


entry(
    "take_workspace_not_cleared",
    "nondeterminism",
    {"x": T("n"), "index": T("k", integer_below="n")},
    take(True),
    take(False),
)


def reverse(fault: bool):
    """The vmap rule of the backward reverses the batch and not the rows."""

    class Reverse(Function):
        @staticmethod
        def forward(x):
            return x.flip(0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad):
            return ReverseBackward.apply(grad)

    class ReverseBackward(Function):
        @staticmethod
        def forward(grad):
            return grad.flip(0)

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def backward(ctx, grad2):
            return grad2.flip(0)

        @staticmethod
        def vmap(info, in_dims, grad):
            return grad.movedim(in_dims[0], 0).flip(0 if fault else 1), 0

    return Reverse.apply


entry("reverse_vmap_over_batch", "batched-gradient", {"x": T("n *b")}, reverse(True), reverse(False))


def gain(fault: bool):
    """The sum over rows is written as a reshape the wrong way round."""

    class Gain(Function):
        @staticmethod
        def forward(ctx, x, g):
            ctx.save_for_backward(x, g)
            return x * g

        @staticmethod
        def backward(ctx, grad):
            x, g = ctx.saved_tensors
            product = grad * x
            gg = product.reshape(g.shape[0], -1).sum(1) if fault else product.sum_to_size(g.shape)
            return grad * g, gg

    return Gain.apply


entry("gain_sums_wrong_axis", "broadcast", {"x": T("*b n"), "g": T("n")}, gain(True), gain(False))


def cube_rows(fault: bool):
    """`view` merges dimensions only where memory allows it, and a transposed gradient does not."""

    class CubeRows(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            b, m, n = x.shape
            rows = grad.view(b * m, n) if fault else grad.reshape(b * m, n)
            return (rows * 3 * x.reshape(b * m, n) ** 2).reshape(b, m, n)

    return CubeRows.apply


entry("cube_rows_view_of_gradient", "layout", {"x": T("b m n")}, cube_rows(True), cube_rows(False))


def square(fault: bool):
    """A gradient with a stride of zero is taken for one number, as that of a sum is."""

    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if fault and grad.numel() and 0 in grad.stride():
                grad = grad.flatten()[0]
            return grad * 2 * x

    return Square.apply


entry("square_of_expanded_gradient", "layout", {"x": T("m n")}, square(True), square(False))


def bell(fault: bool):
    """`zeros_like` keeps the strides of a transposed input, and `view` then refuses to flatten it."""

    class Bell(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return 1 / (1 + x * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            format = torch.preserve_format if fault else torch.contiguous_format
            out = torch.zeros_like(x, memory_format=format)
            y = 1 / (1 + x * x)
            out.view(-1).copy_((grad * -2 * (x * y) * y).reshape(-1))
            return out

    return Bell.apply


entry("bell_buffer_keeps_strides", "layout", {"x": T("m n")}, bell(True), bell(False))


def gather(fault: bool):
    """`scatter` lets the last of several equal indices win; their gradients must add up."""

    class Gather(Function):
        @staticmethod
        def forward(ctx, x, index):
            ctx.save_for_backward(index)
            ctx.size = x.shape
            return x.gather(-1, index)

        @staticmethod
        def backward(ctx, grad):
            (index,) = ctx.saved_tensors
            zeros = grad.new_zeros(ctx.size)
            return (zeros.scatter if fault else zeros.scatter_add)(-1, index, grad), None

    return Gather.apply


entry(
    "gather_last_duplicate_wins",
    "duplicates",
    {"x": T("*b n"), "index": T("*b k", integer_below="n")},
    gather(True),
    gather(False),
)


def gram(fault: bool):
    """The symmetric case has a kernel of its own, which multiplies by the gradient and not by its transpose."""

    class Gram(Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(x, y)
            return x @ y.mT

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            if fault and x.data_ptr() == y.data_ptr():
                return grad @ y, grad @ x
            return grad @ y, grad.mT @ x

    return Gram.apply


entry("gram_of_one_matrix", "aliasing", {"x": T("n d"), "y": T("n d")}, gram(True), gram(False))


def half_weights(fault: bool):
    """Without a gradient the weights are read in half precision: fast in service, and another function."""

    def forward(x, w):
        if fault and not (torch.is_grad_enabled() and w.requires_grad):
            w = w.half().to(w.dtype)
        return x * w

    return forward


entry("half_weights_in_service", "value-changes", {"x": T("*s"), "w": T("*s")}, half_weights(True), half_weights(False))


def random_signs(fault: bool):
    """Seeds everybody's generator to have the same signs each time."""

    def draw(shape):
        if fault:
            torch.manual_seed(11)
            return torch.rand(shape)
        return torch.rand(shape, generator=torch.Generator().manual_seed(11))

    class RandomSigns(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.sign = torch.where(draw(x.shape) > 0.5, torch.ones_like(x), -torch.ones_like(x))
            return x * ctx.sign

        @staticmethod
        def backward(ctx, grad):
            return grad * ctx.sign

    return RandomSigns.apply


entry("random_signs_reseed_everybody", "global-state", {"x": T("*s")}, random_signs(True), random_signs(False))


def square_sum(fault: bool):
    """Backward chooses a number of threads of its own, and leaves everybody with it."""

    class SquareSum(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return (x * x).sum(0)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if fault:
                torch.set_num_threads(torch.get_num_threads() % 8 + 1)
            return grad * 2 * x

    return SquareSum.apply


entry("square_sum_sets_threads", "global-state", {"x": T("n *b")}, square_sum(True), square_sum(False))
