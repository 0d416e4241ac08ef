"""The screen: say *agrees* at the price of a few calls, or nothing at all.

Nearly every case is right, so the price of a case is the price of saying so. One double backward, the exact identities
on its graph, differences along one direction, and everything forward mode gives along the same
one: where all of it agrees, is finite and has power, no oracle needs to look again. Whatever is not clearly right is
left to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import DIRECTIONS, IDENTITIES, NESTED, drawn, scales
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised, Second, backward, double_backward
from gradfuzz.checker.nested import along, raised_in_a_jvp
from gradfuzz.checker.tensors import Array, Tensors, flat, materialize, move, segments, unflat

if TYPE_CHECKING:
    from gradfuzz.checker.line import Context
    from gradfuzz.checker.run import Run

# Three points beside x, at -h, h/2 and h. With x itself they give a derivative that is exact for cubics. Its bar is
# what it changes of the central difference, h^2/6 of the third derivative: so it holds if the cubic gains nothing. At
# 2^-16 of the inputs' scale that is 4e-11, as much as rounding, 16/3 eps V / h, is of V.
STEP = 2.0**-16
STEPS = (-STEP, STEP / 2, STEP)
# The derivative at 0 of the cubic through the values at x and at the three points, over h: weights that add up to 0.
CUBIC = (-2.0, -1 / 6, 8 / 3, -1 / 2)
# Rounding of V enters by the sum of their sizes.
CUBIC_ROUNDING = 16 / 3
# Another way to the same number rounds in another order: so many roundings of the largest element.
ROUNDINGS = 1e3
# G with create_graph takes the same path but for what is recorded.
GRAPH_ROUNDINGS = 64
# Both sides of the adjoint identity are sums of products: this share of their absolute sum is no difference.
ADJOINT = 1e-8


@dataclass(frozen=True, slots=True)
class Agreed:
    """A direction along which every derivative agreed with its difference quotient, with power.

    Attributes:
        x: The point.
        u: The direction.
        v: The grad_outputs.
        analytic: The derivatives by autograd.
        elements: How many numbers were compared.
        forward: Whether forward mode, and the modes built on it, were seen to agree as far as they exist.
    """

    x: Tensors
    u: Tensors
    v: Tensors
    analytic: First
    elements: int
    forward: bool = False


def screen(run: Run) -> Agreed | None:
    """Compare everything once; None where anything does not agree, for whatever reason.

    Where the inputs as given are the point of judgement, the graph of the base calls serves, and the double backward
    is left in the run for others.
    """
    if run.tolerance.least_step > STEP / 2 or run.context.left_out is not False or run.base.grads is None:
        return None
    if run.allowed_inputs is None or not run.allowed_inputs.all() or not len(run.allowed_inputs):
        return None
    s = scales(run.x)
    u = drawn(run.seed, DIRECTIONS, len(s)) * s
    try:
        with np.errstate(all="ignore"):
            return _first_order(run, u, s) if run.context.order < 2 else _second_order(run, u, s)
    except (ForwardRaised, BackwardRaised):
        return None


def _first_order(run: Run, u_flat: Array, s: Array) -> Agreed | None:
    u, v = unflat(u_flat, run.x), run.weights
    first = run.context.subject.gradient(run.x, v)
    line = Line(run.context, run.x, u, v, first, u_flat, flat(v), s)
    return Agreed(run.x, u, v, first, 1) if agrees(line) else None


def _second_order(run: Run, u_flat: Array, s: Array) -> Agreed | None:
    subject, x, v, eps = run.context.subject, run.x, run.weights, run.context.eps
    u = unflat(u_flat, x)
    if run.shared:
        leaves, outputs = run.base.leaves, run.base.graph
        plain = run.base.gradients
    else:
        leaves, outputs = subject.forward(x)
        plain = materialize(backward(outputs, leaves, v, retain_graph=True), leaves)
    second = double_backward(leaves, outputs, v, u, retain_graph=True)
    if run.shared:
        run.second, run.second_along = second, u
    if any(second.detached):
        return None
    g = flat(second.gradients)
    largest = float(np.abs(g).max(initial=0.0))
    if not close(flat(plain), g, GRAPH_ROUNDINGS * eps * largest):
        return None
    line = Line(run.context, x, u, v, second, u_flat, flat(v), s)
    p, hessian = flat(second.jacobian_u), flat(second.hessian_u)
    # <P, r> = <G(x, r), u>, with r drawn apart from v.
    r = drawn(run.seed, IDENTITIES, len(p))
    there = flat(materialize(backward(outputs, leaves, unflat(r, v), retain_graph=True), leaves))
    if not close_sums(p * r, there * u_flat, ADJOINT):
        return None
    if not agrees(line):
        return None
    w_flat = drawn(run.seed, NESTED, len(s)) * s
    w = unflat(w_flat, x) if "fwd-fwd" in run.modes else None
    nested = along(subject, x, v, u, w, order=2 if run.modes else 1)
    run.keep(nested, w)
    forward = not any(raised_in_a_jvp(error) for error in nested.missing.values())
    for got, want in ((nested.tangent, p), (nested.fwd_rev, hessian), (nested.rev_fwd, hessian)):
        if got is not None:
            forward &= close(flat(got), want, ROUNDINGS * eps * float(np.abs(want).max(initial=0.0)))
    if nested.fwd_fwd is not None:
        forward &= close_sums(flat(nested.fwd_fwd) * line.v_flat, hessian * w_flat, ROUNDINGS * eps)
    return Agreed(x, u, v, second, len(p) + len(g) + 1, forward=forward)


def close(a: Array, b: Array, allowed: float) -> bool:
    """Whether nothing differs by more than `allowed`; what is not finite differs."""
    return bool(np.abs(a - b).max(initial=0.0) <= allowed)


def close_sums(left: Array, right: Array, share: float) -> bool:
    """Whether two inner products, given by their terms, differ by no more than a share of their absolute sum."""
    gap = abs(float(left.sum()) - float(right.sum()))
    return gap <= share * (float(np.abs(left).sum()) + float(np.abs(right).sum()))


class Line(NamedTuple):
    """What is compared along one direction, with its vectors as plain numbers; `s` are the scales of x."""

    context: Context
    x: Tensors
    u: Tensors
    v: Tensors
    analytic: First
    u_flat: Array
    v_flat: Array
    s: Array


def agrees(line: Line) -> bool:
    """Compare all that is analytic with differences along u, element by element (`numeric.compare`)."""
    analytic, u_flat, v_flat, eps = line.analytic, line.u_flat, line.v_flat, line.context.eps
    gradients = flat(analytic.gradients)
    slope = np.array([gradients @ u_flat])
    second = isinstance(analytic, Second)
    if isinstance(analytic, Second):
        derivatives = np.concatenate([flat((*analytic.jacobian_u, *analytic.hessian_u)), slope])
    else:
        derivatives = slope
    if not (np.isfinite(derivatives).all() and np.isfinite(gradients).all()):
        return False
    rows = _rows(line, second=second)
    if rows is None:
        return False
    best = (CUBIC[0] * rows[0] + CUBIC[1] * rows[1] + CUBIC[2] * rows[2] + CUBIC[3] * rows[3]) / STEP
    plain = (rows[3] - rows[1]) / (2 * STEP)
    size = np.abs(rows).max(axis=0)
    # Rounding of V over the step; jitter is not measured here: a function that rounds worse than its value's own eps
    # shows a gap, and goes to the judge.
    error = np.abs(best - plain) + CUBIC_ROUNDING * eps / STEP * size
    own = np.maximum(np.abs(derivatives), np.abs(best))
    scale, floor, natural = _scales(line, size, own, gradients)
    # What the two inner products add up to before their terms cancel.
    absolute = float(np.abs(gradients) @ np.abs(u_flat))
    absolute += float(np.abs(v_flat) @ np.abs(best[: len(v_flat)])) if second else 0.0
    scale[-1] = max(scale[-1], numeric.SMALLEST_SHARE * absolute)
    bar = numeric.AGREE_BARS * error + floor
    allowed = bar + numeric.INSIGNIFICANT * scale
    tolerance = line.context.tolerance
    if tolerance.atol or tolerance.rtol:
        allowed += tolerance.atol + tolerance.rtol * np.abs(best)
    right = np.abs(derivatives - best) <= allowed
    right &= bar <= np.maximum(numeric.POWER_RELATIVE * scale, numeric.POWER_NATURAL * natural)
    return bool(right.all())


def _rows(line: Line, *, second: bool) -> Array | None:
    """Give F, G and <v, F> at x and at the three points beside it, one row a point; at first order <v, F> alone."""
    subject, analytic = line.context.subject, line.analytic
    rows = [flat((*analytic.values, *analytic.gradients)) if second else flat(analytic.values)]
    try:
        for h in STEPS:
            moved = move(line.x, line.u, h)
            if second:
                there = subject.gradient(moved, line.v, fresh=True)
                rows.append(flat((*there.values, *there.gradients)))
            else:
                rows.append(flat(subject.value(moved)))
    except (ForwardRaised, BackwardRaised):
        return None
    measured = np.array(rows)
    sums = measured[:, : len(line.v_flat)] @ line.v_flat
    return np.column_stack([measured, sums]) if second else sums[:, None]


def _scales(line: Line, size: Array, own: Array, gradients: Array) -> tuple[Array, Array, Array]:
    """Give by element what it is judged by, what rounding may cost it, and its natural scale, as `line` does."""
    eps, s = line.context.eps, line.s
    x_largest = float(np.abs(flat(line.x)).max(initial=0.0))
    v_sizes = np.abs(line.v_flat)
    if len(own) == 1:
        natural = np.maximum(size, x_largest * v_sizes.sum())
        return own.copy(), (64 * own + 8 * natural) * eps, natural
    values = len(v_sizes)
    tensor, natural, scale = own.copy(), np.empty_like(own), own.copy()
    largest = max(float(size[:values].max(initial=0.0)), x_largest)
    natural[:values] = largest
    natural[values:-1] = largest * float(v_sizes.max(initial=0.0)) / np.maximum(s, np.finfo(np.float64).tiny)
    natural[-1] = largest * float(v_sizes.sum())
    tensor[:values] = own[:values].max(initial=0.0)
    for part in segments(line.x):
        here = slice(values + part.start, values + part.stop)
        tensor[here] = own[here].max(initial=0.0)
        least = numeric.SMALLEST_SHARE * float(np.abs(gradients[part]).max(initial=0.0))
        np.maximum(scale[here], least, out=scale[here])
    np.maximum(scale, numeric.SMALLEST_SHARE * tensor, out=scale)
    return scale, (64 * tensor + 8 * natural) * eps, natural
