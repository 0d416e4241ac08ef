"""Pointwise functions whose first derivative is wrong for ordinary values."""

from __future__ import annotations

import torch
from entry import Float, OneOf, T, entry
from torch.autograd import Function


def quick_gelu(fault: bool):
    """The constant of the forward was copied with one digit less."""
    slope = 1.7 if fault else 1.702

    class QuickGelu(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * torch.sigmoid(1.702 * x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            s = torch.sigmoid(slope * x)
            return grad * (s + x * (s * (1 - s)) * slope)

    return QuickGelu.apply


entry("quick_gelu_rounded_constant", "wrong-gradient", {"x": T("*s")}, quick_gelu(True), quick_gelu(False))


def huber(fault: bool):
    """The slope of the linear part is delta on both sides; the left one needs its sign."""

    class Huber(Function):
        @staticmethod
        def forward(ctx, x, delta):
            ctx.save_for_backward(x)
            ctx.delta = delta
            return torch.where(x.abs() <= delta, 0.5 * x * x, delta * (x.abs() - 0.5 * delta))

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            linear = torch.ones_like(x) if fault else x.sign()
            return grad * torch.where(x.abs() <= ctx.delta, x, ctx.delta * linear), None

    return Huber.apply


entry("huber_left_tail", "wrong-gradient", {"x": T("*s"), "delta": Float(0.5, 3.0)}, huber(True), huber(False))


def power(fault: bool):
    """The logarithm in the exponent's gradient is that of the exponent and not of the base."""

    class Power(Function):
        @staticmethod
        def forward(ctx, x, p):
            ctx.save_for_backward(x, p)
            return x**p

        @staticmethod
        def backward(ctx, grad):
            x, p = ctx.saved_tensors
            log = torch.log(p if fault else x)
            return grad * p * x ** (p - 1), grad * x**p * log

    return Power.apply


entry(
    "power_logarithm_of_exponent",
    "wrong-gradient",
    {"x": T("*s", bounds=(0.05, 20.0)), "p": T("*s", bounds=(0.5, 3.0))},
    power(True),
    power(False),
)


def floor_at(fault: bool):
    """Where the floor is taken the gradient belongs to it; it was thought of as a constant."""

    class FloorAt(Function):
        @staticmethod
        def forward(ctx, x, low):
            ctx.save_for_backward(x, low)
            return torch.maximum(x, low)

        @staticmethod
        def backward(ctx, grad):
            x, low = ctx.saved_tensors
            zero = torch.zeros_like(grad)
            above = x >= low
            return torch.where(above, grad, zero), zero if fault else torch.where(above, zero, grad)

    return FloorAt.apply


entry("floor_taken_as_constant", "wrong-gradient", {"x": T("*s"), "low": T("*s")}, floor_at(True), floor_at(False))


def power_of_two(fault: bool):
    """Backward raises two to the exponent in integers, where a negative exponent gives zero."""

    class PowerOfTwo(Function):
        @staticmethod
        def forward(ctx, x, exponent):
            ctx.save_for_backward(exponent)
            return x * torch.exp2(exponent.to(x.dtype))

        @staticmethod
        def backward(ctx, grad):
            (exponent,) = ctx.saved_tensors
            if fault:
                return grad * torch.where(exponent < 0, 0, 1 << exponent.clamp(min=0)), None
            return grad * torch.exp2(exponent.to(grad.dtype)), None

    return PowerOfTwo.apply


entry(
    "power_of_two_in_integers",
    "wrong-gradient",
    {"x": T("*s"), "exponent": T("*s", dtypes=("int64",), bounds=(-6, 6))},
    power_of_two(True),
    power_of_two(False),
    source="torch.ldexp",
)


def power_sum(fault: bool):
    """The derivative of |x|^p is written as for even powers."""

    class PowerSum(Function):
        @staticmethod
        def forward(ctx, x, p):
            ctx.save_for_backward(x)
            ctx.p = p
            return (x.abs() ** p).sum()

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            if ctx.p == 1:
                return grad * x.sign(), None
            if ctx.p == 2:
                return grad * 2 * x, None
            return grad * 3 * x * (x if fault else x.abs()), None

    return PowerSum.apply


entry(
    "power_sum_odd_exponent",
    "argument",
    {"x": T("*s"), "p": OneOf((1, 2, 3))},
    power_sum(True),
    power_sum(False),
)


def scaled_product(fault: bool):
    """The scale is multiplied into the upstream gradient only on the way to the first input."""

    class ScaledProduct(Function):
        @staticmethod
        def forward(ctx, x, w, scale):
            ctx.save_for_backward(x, w)
            ctx.scale = scale
            return scale * x * w

        @staticmethod
        def backward(ctx, grad):
            x, w = ctx.saved_tensors
            gx = gw = None
            if not fault:
                grad = grad * ctx.scale
            if ctx.needs_input_grad[0]:
                if fault:
                    grad = grad * ctx.scale
                gx = grad * w
            if ctx.needs_input_grad[1]:
                gw = grad * x
            return gx, gw, None

    return ScaledProduct.apply


entry(
    "scaled_product_second_only",
    "requires-grad-mask",
    {"x": T("*s"), "w": T("*s"), "scale": Float(1.5, 4.0)},
    scaled_product(True),
    scaled_product(False),
)


def batch_mean_square(fault: bool):
    """Backward takes the batch size from the gradient's first dimension, which a scalar has not."""

    def batch(t):
        return max(t.shape[0], 1) if fault or t.dim() else 1

    class BatchMeanSquare(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x / (max(x.shape[0], 1) if x.dim() else 1)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            return grad * 2 * x / batch(grad)

    return BatchMeanSquare.apply


entry("mean_square_batch_of_scalar", "zero-dim", {"x": T("*s")}, batch_mean_square(True), batch_mean_square(False))


def complex_product(fault: bool):
    """One of the two conjugates was forgotten."""

    class Product(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a * b

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            return grad * b.conj(), grad * (a if fault else a.conj())

    return Product.apply


COMPLEX = ("complex128", "complex64")
entry(
    "complex_product_half_conjugated",
    "complex",
    {"a": T("*s", dtypes=COMPLEX), "b": T("*s", dtypes=COMPLEX)},
    complex_product(True),
    complex_product(False),
)


def squared_magnitude(fault: bool):
    """The output is real, and so the conjugate was thought to be due here as well."""

    class SquaredMagnitude(Function):
        @staticmethod
        def forward(ctx, z):
            ctx.save_for_backward(z)
            return z.real * z.real + z.imag * z.imag

        @staticmethod
        def backward(ctx, grad):
            (z,) = ctx.saved_tensors
            return 2 * grad * (z.conj() if fault else z)

    return SquaredMagnitude.apply


entry(
    "squared_magnitude_conjugated",
    "complex",
    {"z": T("*s", dtypes=COMPLEX)},
    squared_magnitude(True),
    squared_magnitude(False),
)


def logistic(fault: bool):
    """The forward-mode rule uses the input where the output belongs."""

    class Logistic(Function):
        @staticmethod
        def forward(x):
            return torch.sigmoid(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            (x,) = inputs
            ctx.save_for_backward(x)
            ctx.save_for_forward(x)

        @staticmethod
        def backward(ctx, grad):
            (x,) = ctx.saved_tensors
            y = torch.sigmoid(x)
            return grad * y * (1 - y)

        @staticmethod
        def jvp(ctx, tangent):
            (x,) = ctx.saved_tensors
            y = x if fault else torch.sigmoid(x)
            return tangent * y * (1 - y)

    return Logistic.apply


entry("logistic_jvp_of_input", "forward-mode", {"x": T("*s")}, logistic(True), logistic(False))


def product_rule(fault: bool):
    """The forward-mode rule has one of the two terms of the product rule."""

    class Product(Function):
        @staticmethod
        def forward(x, y):
            return x * y

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.save_for_forward(*inputs)

        @staticmethod
        def backward(ctx, grad):
            x, y = ctx.saved_tensors
            return grad * y, grad * x

        @staticmethod
        def jvp(ctx, tx, ty):
            x, y = ctx.saved_tensors
            total = torch.zeros_like(x) if tx is None else tx * y
            return total if ty is None or fault else total + x * ty

    return Product.apply


entry(
    "product_jvp_of_one_factor", "forward-mode", {"x": T("*s"), "y": T("*s")}, product_rule(True), product_rule(False)
)
