"""Functions with derivatives that are right, and that are wrong in one way each."""

from __future__ import annotations

import random

import torch
from torch.autograd import Function


def real(*shape, seed=0, dtype=torch.float64):
    """Normal draws that ask for a gradient; torch's own generator is left alone."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


def positive(*shape, seed=0):
    return (real(*shape, seed=seed).detach().abs() + 0.5).requires_grad_()


def hooked(hook):
    """The identity, with a hook on what flows back."""

    def function(x):
        y = x.clone()
        y.register_hook(hook)
        return y

    return function


class Cube(Function):
    """Right at every order, forward mode included."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 3 * x * x * t


class WrongCube(Cube):
    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * x * g


class WrongTangent(Cube):
    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return 2 * x * x * t


class NoTangent(Cube):
    jvp = Function.jvp


class NoBackward(Cube):
    @staticmethod
    def backward(ctx, g):
        raise RuntimeError("this has no backward")


class SavedSquare(Function):
    """x**3 / 3: the first derivative is right, but the saved square counts as a constant in the second."""

    @staticmethod
    def forward(ctx, x):
        square = x * x
        ctx.save_for_backward(square)
        return x * square / 3

    @staticmethod
    def backward(ctx, g):
        (square,) = ctx.saved_tensors
        return g * square


class SavedSquareAlone(Function):
    """The square itself, multiplied by in backward: wrong at the first order already."""

    @staticmethod
    def forward(ctx, x):
        square = x * x
        ctx.save_for_backward(square)
        return square

    @staticmethod
    def backward(ctx, g):
        (square,) = ctx.saved_tensors
        return g * square


class ConsistentlyHalved(Function):
    """A wrong backward whose own backward is consistent with it."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return x * g


class ThroughNumpy(Function):
    """Right at the first order; what it returns carries no graph and cannot be batched."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return torch.from_numpy(2 * g.detach().numpy())


class DetachedGradOutput(Function):
    """The gradient by y is right but carries no graph; that by x is right in full."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, (g * x).detach()


class RefusesUndefined(Function):
    """The sum and the difference; backward adds what it is given, which may be None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return 2 * x, 3 * x

    @staticmethod
    def backward(ctx, g, h):
        if g is None or h is None:
            raise RuntimeError("a grad_output is undefined")
        return 2 * g + 3 * h


class OffByTwoThousandth(Function):
    """The gradient of the sine, 0.05 % too large; consistently so."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 1.0005 * g * x.cos()


class Tiny(Function):
    """A gradient far below torch's absolute tolerance, of the wrong sign."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 1e-7 * x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -2e-7 * x * g


class ViewsGradOutput(Function):
    """Takes for granted that its grad_output is contiguous."""

    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 2 * g.view(-1).view(ctx.shape)


class WritesGradOutput(Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return g.mul_(2)


class Noisy(Function):
    """The identity; its gradient is off by another fraction of `size` in every call."""

    @staticmethod
    def forward(ctx, x, size):
        ctx.size = size
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * (1 + ctx.size * random.uniform(-1, 1)), None


class NoisyTwice(Function):
    """The sine with a backward that repeats, and a double backward that does not."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Noisy.apply(g * x.cos(), 1e-7)


class WrongTangentSquare(Function):
    """A right backward and a wrong forward rule."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return x * t


class TangentThroughNumpy(Function):
    """A right forward rule by way of numpy."""

    @staticmethod
    def forward(x):
        return 2 * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return 2 * g

    @staticmethod
    def jvp(ctx, t):
        return torch.from_numpy(2 * t.numpy())


class CubesGradient(Function):
    """3 x x g, with a right forward rule and without a backward."""

    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_forward(x, g)
        return 3 * x * x * g

    @staticmethod
    def backward(ctx, h):
        raise RuntimeError("no double backward")

    @staticmethod
    def jvp(ctx, t, s):
        x, g = ctx.saved_tensors
        return 6 * x * t * g + 3 * x * x * s


class CubeOnce(Cube):
    """Its second derivative exists by forward over reverse alone."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return CubesGradient.apply(x, g)


class WrongSecondTangent(Cube):
    """Right in reverse mode at both orders; its backward uses a function whose forward rule is wrong."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return WrongTangentSquare.apply(x) * 3 * g
