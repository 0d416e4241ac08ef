"""One column of a Jacobian: the derivatives by a single element, by differences."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import unit
from gradfuzz.checker.evaluation import First
from gradfuzz.checker.line import Context, sample
from gradfuzz.checker.numeric import Estimate, Mask, Samples
from gradfuzz.checker.tensors import Tensors, flat

# An error bar this small beside the largest of its column needs no finer ladder.
SHARP = 1e-6


def scale_of(x: Tensors, index: int) -> float:
    """How far one element is moved: by its own size, or by 1 where it is zero."""
    size = abs(float(flat(x)[index]))
    return size if size > 0 else 1.0


def sharpest(measured: Callable[[numeric.LadderSpec], Samples], eps: float) -> tuple[Estimate, Mask]:
    """Estimate on the screen's ladder, and on the others too where that leaves an error bar too wide to show.

    Returns:
        The estimate, and by element whether one of the ladders walked saw a kink.
    """
    best: Estimate | None = None
    kinked: Mask = np.zeros(1, dtype=bool)
    for spec in (numeric.SCREEN, numeric.WIDE, numeric.FINE):
        samples = measured(spec)
        nothing = np.zeros(len(samples.centre))
        new = numeric.central(samples, noise=nothing, eps=eps)
        best = new if best is None else best.or_sharper(new)
        kinked = kinked | numeric.not_smooth(samples, noise=nothing, eps=eps)
        with np.errstate(all="ignore"):
            if (best.error <= SHARP * np.abs(best.value).max(initial=0.0)).all():
                break
    assert best is not None
    return best, kinked


def of_values(context: Context, x: Tensors, v: Tensors, first: First, index: int) -> tuple[Estimate, Mask]:
    """Estimate dF/dx by one element of x, for every output element; tell where F has a kink."""
    s = scale_of(x, index)
    u = unit(x, index, s)

    def along(spec: numeric.LadderSpec) -> Samples:
        return sample(context, x, u, v, first, context.spec(spec), gradients=False)[0]

    estimate, kinked = sharpest(along, context.eps)
    return Estimate(estimate.value / s, estimate.error / s), kinked


def of_gradients(context: Context, x: Tensors, v: Tensors, first: First, u: Tensors) -> tuple[Estimate, Mask]:
    """Estimate dG/dx along u, for every element of x; tell where G has a kink."""

    def along(spec: numeric.LadderSpec) -> Samples:
        gradients = sample(context, x, u, v, first, context.spec(spec), gradients=True)[1]
        assert gradients is not None  # they were asked for
        return gradients

    return sharpest(along, context.eps)
