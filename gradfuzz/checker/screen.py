"""The screen: say *agrees* at the price of four calls, or nothing at all.

Nearly every case is right, so the price of a case is the price of saying so. Two rungs of central differences along
one direction, compared with everything one double backward gives; whatever is not clearly right, smooth and finite
is left to the judge.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import scales
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised, Second
from gradfuzz.checker.line import Context
from gradfuzz.checker.tensors import Array, Tensors, flat, move, segments

# Two rungs. The bar of what they extrapolate to is the coarser one's own error, h^2/6 of the third derivative: 2.5e-9
# of the inputs' scale, which leaves a thousandth of power to elements of G a millionth as large as others. Rounding
# over the finer step, 4 eps V / h, is 3e-11 of V.
STEP, RATIO = 2.0**-13, 4.0
STEPS = (STEP, STEP / RATIO)


@dataclass(frozen=True, slots=True)
class Agreed:
    """A direction along which every derivative agreed with its difference quotient, with power.

    Attributes:
        x: The point.
        u: The direction.
        v: The grad_outputs.
        analytic: The derivatives by autograd.
        elements: How many numbers were compared.
    """

    x: Tensors
    u: Tensors
    v: Tensors
    analytic: First
    elements: int


def screen(context: Context, x: Tensors, u: Tensors, v: Tensors, analytic: First) -> Agreed | None:
    """Compare along u on two rungs; None where anything does not agree, for whatever reason."""
    if context.tolerance.least_step > STEPS[-1] or context.left_out is not False:
        return None
    v_flat, gradients = flat(v), flat(analytic.gradients)
    slope = np.array([gradients @ flat(u)])
    if isinstance(analytic, Second):
        derivatives = np.concatenate([flat(analytic.jacobian_u), flat(analytic.hessian_u), slope])
    else:
        derivatives = slope
    if not (np.isfinite(derivatives).all() and np.isfinite(gradients).all()):
        return None
    rows = _rows(context, x, u, v, v_flat, second=isinstance(analytic, Second))
    if rows is None:
        return None
    with np.errstate(all="ignore"):
        coarse = (rows[0] - rows[1]) / (2 * STEPS[0])
        fine = (rows[2] - rows[3]) / (2 * STEPS[1])
        best = (RATIO**2 * fine - coarse) / (RATIO**2 - 1)
        size = np.abs(rows).max(axis=0)
        # Rounding of V over the shorter step, as in `numeric.central`; jitter is not measured here: a function that
        # rounds worse than its value's own eps shows a gap, and goes to the judge.
        error = np.maximum(np.abs(best - fine), np.abs(best - coarse)) + 4 * context.eps * size / STEPS[1]
        own = np.maximum(np.abs(derivatives), np.abs(best))
        scale, floor, natural = _scales(context, x, v, size, own, gradients)
        # What the two inner products add up to before their terms cancel.
        absolute = np.abs(gradients * flat(u)).sum() + np.abs(v_flat * best[: len(v_flat)]).sum() * (len(best) > 1)
        scale[-1] = max(scale[-1], numeric.SMALLEST_SHARE * absolute)
        bar = numeric.AGREE_BARS * error + floor
        wide = context.tolerance.atol + context.tolerance.rtol * np.abs(best)
        agrees = np.abs(derivatives - best) <= bar + numeric.INSIGNIFICANT * scale + wide
        agrees &= bar <= np.maximum(numeric.POWER_RELATIVE * scale, numeric.POWER_NATURAL * natural)
    return Agreed(x, u, v, analytic, len(derivatives)) if agrees.all() else None


def _rows(context: Context, x: Tensors, u: Tensors, v: Tensors, v_flat: Array, *, second: bool) -> Array | None:
    """Measure F, G and <v, F> at both sides of both rungs, one row a call; at first order <v, F> alone."""
    rows = []
    try:
        for h in (STEPS[0], -STEPS[0], STEPS[1], -STEPS[1]):
            moved = move(x, u, h)
            if second:
                there = context.subject.gradient(moved, v)
                values = flat(there.values)
                rows.append(np.concatenate([values, flat(there.gradients), [values @ v_flat]]))
            else:
                rows.append(np.array([flat(context.subject.value(moved)) @ v_flat]))
    except (ForwardRaised, BackwardRaised):
        return None
    return np.array(rows)


def _scales(
    context: Context, x: Tensors, v: Tensors, size: Array, own: Array, gradients: Array
) -> tuple[Array, Array, Array]:
    """Give by element what it is judged by, what rounding may cost it, and its natural scale, as `line` does."""
    x_largest = np.abs(flat(x)).max(initial=0.0)
    v_sizes = np.abs(flat(v))
    tensor, natural, scale = own.copy(), np.full_like(own, x_largest), own.copy()
    if len(own) > 1:
        for part in segments(v):
            natural[part] = max(size[part].max(initial=0.0), x_largest)
            tensor[part] = own[part].max(initial=0.0)
        largest = natural[: len(v_sizes)].max(initial=0.0)
        inputs = slice(len(v_sizes), -1)
        natural[inputs] = largest * v_sizes.max(initial=0.0) / np.maximum(scales(x), np.finfo(np.float64).tiny)
        for part in segments(x):
            here = slice(inputs.start + part.start, inputs.start + part.stop)
            tensor[here] = own[here].max(initial=0.0)
            least = numeric.SMALLEST_SHARE * np.abs(gradients[part]).max(initial=0.0)
            scale[here] = np.maximum(scale[here], least)
        natural[-1] = natural[: len(v_sizes)] @ v_sizes
    else:
        natural[-1] = max(size[-1], x_largest * v_sizes.sum())
    scale = np.maximum(scale, numeric.SMALLEST_SHARE * tensor)
    return scale, 64 * context.eps * tensor + 8 * context.eps * natural, natural
