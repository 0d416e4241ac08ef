"""Exact identities: what holds without a step size, up to rounding, in any dtype and at any kink."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gradfuzz.checker import explain, numeric
from gradfuzz.checker.column import of_values
from gradfuzz.checker.direction import IDENTITIES, JITTER, SETTLING, direction, generic, jittered
from gradfuzz.checker.evaluation import Second, backward
from gradfuzz.checker.line import Context, Measurement, Quantity, measure, neighbour
from gradfuzz.checker.naming import against, apart, element_of
from gradfuzz.checker.numeric import Answer
from gradfuzz.checker.run import Run
from gradfuzz.checker.screen import GRAPH_ROUNDINGS
from gradfuzz.checker.settle import NEAR, Bench, additive
from gradfuzz.checker.tensors import Array, Tensors, flat, materialize, segments, unflat
from gradfuzz.checker.verdict import Finding, Symptom

# Both sides of the adjoint identity are sums of products: so many roundings of their absolute sum, and in double
# nothing that a maintainer would act on.
ADJOINT_ROUNDINGS = 32
INSIGNIFICANT = 1e-8
NATURAL_ROUNDINGS = 64
# What two roundings of the inputs do to either side, and this many times more, is no violation.
NOISE_FACTOR = 16
LOST = "the gradient is linear in its grad_output, but its graph has lost some of that"
# A violation counts when so many independent draws show it.
TIMES = 2


def identities_hold(run: Run) -> Iterator[Finding]:
    """G is one function of x and v, whether or not it is recorded, and linear in v with the Jacobian it claims."""
    second = run.second
    if run.agreed is not None and run.shared:
        return  # the screen compared the same
    if second is None or run.base.grads is None or not run.finite:
        return
    yield from _recorded(run, second)
    yield from _adjoint(run, second)
    if run.own_precision:  # elsewhere differences compare every element of H u, and see more
        yield from _symmetric(run)


def _recorded(run: Run, second: Second) -> Iterator[Finding]:
    """G with create_graph equals G without; where they differ, differences of the function say which is wrong."""
    got, want = flat(run.base.gradients), flat(second.gradients)
    with np.errstate(all="ignore"):
        largest = np.abs(want).max(initial=0.0, where=np.isfinite(want))
        gaps = np.where(np.isfinite(got) & np.isfinite(want), np.abs(got - want), 0.0)
    if not (gaps > GRAPH_ROUNDINGS * run.eps * largest + run.least_difference + run.nondet_tol).any():
        return
    context = replace(run.context, order=1)
    bench = Bench(context, run.x, run.weights, run.rng(SETTLING), run.allowed_inputs, run.allowed_outputs)
    # The jitter of either gradient excuses nothing here: a gradient with a special case at the point jumps beside it.
    for recorded in (True, False):
        decided = [_told_apart(run, bench, recorded=recorded) for _ in range(TIMES)]
        if not all(decided):
            continue
        m = decided[0]
        assert m is not None  # all of them are there
        if not additive(bench, Quantity.SLOPE, m):
            return
        run.first_order_wrong = True
        text = "right with create_graph=True and wrong without" if recorded else "wrong with create_graph=True alone"
        yield _at_element(run, context, m, int(gaps.argmax()), recorded=recorded, text=text)
        return


def _told_apart(run: Run, bench: Bench, *, recorded: bool) -> Measurement | None:
    """Measure along a fresh direction: one of the two gradients must agree with differences, the other contradict."""
    context = bench.context
    u = direction(bench.rng, run.x, run.allowed_inputs)
    v = generic(bench.rng, run.weights, run.allowed_outputs)
    right = context.subject.gradient(run.x, v, create_graph=recorded)
    wrong = context.subject.gradient(run.x, v, create_graph=not recorded)
    m = measure(context, run.x, u, v, bench.rng, analytic=right)
    if m.answer(Quantity.SLOPE) is not Answer.AGREES:
        return None
    estimate = m.estimates[Quantity.SLOPE]
    slope = float(flat(wrong.gradients) @ flat(u))
    scale = float(np.abs(flat(right.gradients) * flat(u)).sum())
    bar = numeric.CONTRADICT_BARS * float(estimate.error[0]) + numeric.POWER_RELATIVE * scale
    return m if abs(slope - float(estimate.value[0])) > bar else None


def _at_element(run: Run, context: Context, m: Measurement, k: int, *, recorded: bool, text: str) -> Finding:
    """Say what is wrong at the element where the two gradients differ most, with ones for grad_outputs."""
    allowed = run.allowed_outputs
    ones = unflat(np.where(allowed, 1.0, 0.0) if allowed is not None else np.ones(flat(m.v).size), m.v)
    v = ones
    wrong = context.subject.gradient(run.x, v, create_graph=not recorded)
    estimate, _ = of_values(context, run.x, v, wrong, k)
    weights = flat(v)
    name, element = element_of(context.subject.wrt, run.subject.names, k)
    value, error = float(estimate.value @ weights), float(estimate.error @ np.abs(weights))
    return Finding(
        Symptom.WRONG_GRADIENT, name, *against(float(flat(wrong.gradients)[k]), value, error), 1, "rev", element, text
    )


def _adjoint(run: Run, second: Second) -> Iterator[Finding]:
    """<P, r> = <G(x, r), u> for any r: the graph of G lost nothing of v, and G is linear in v."""
    rng = run.rng(IDENTITIES)
    leaves, outputs = second.leaves, second.outputs
    found: Finding | None = None
    for attempt in range(TIMES):
        r = generic(rng, run.base.outputs)
        # The graph of the base call is still alive: one more backward is all that the identity costs.
        there = flat(materialize(backward(outputs, leaves, r, retain_graph=True), leaves))
        u, p, r_flat = _recorded_part(run, second), flat(second.jacobian_u), flat(r)
        right = there * u
        left = p * r_flat
        if not (np.isfinite(left).all() and np.isfinite(right).all()):
            return
        scale = float(np.abs(left).sum() + np.abs(right).sum())
        # Where both sides cancel to nothing, their rounding is that of what they were computed from.
        natural = float(np.abs(flat(run.base.outputs)).max(initial=0.0) * np.abs(r_flat).sum())
        # 1 - z - z (1 - t^2) of a z near a half: a gradient, too, may be what is left of terms as large as r.
        natural += float(np.abs(r_flat).max(initial=0.0) * np.abs(u).sum())
        allowed = max(ADJOINT_ROUNDINGS * run.eps, INSIGNIFICANT) * scale + run.least_difference
        allowed += NATURAL_ROUNDINGS * run.eps * natural
        if abs(left.sum() - right.sum()) <= allowed:
            return
        noise_p, noise_g = _noise(run, r)
        allowed += NOISE_FACTOR * float(noise_p @ np.abs(r_flat) + noise_g @ np.abs(u))
        if abs(left.sum() - right.sum()) <= allowed:
            return
        found = found or _violation(run, second, r, there, allowed / max(attempt, 1))
    if found is not None:
        yield found


def _symmetric(run: Run) -> Iterator[Finding]:
    """<H u, w> = <H w, u>: at the point and beside it, for at a kink each of the two may choose its own answer."""
    rng = run.rng(IDENTITIES)
    seen: tuple[float, float] | None = None
    for attempt in range(TIMES):
        x = run.subject.point if attempt == 0 else neighbour(run.subject.point, rng, NEAR)
        u, w = direction(rng, x), direction(rng, x)
        both = [_product(run, x, a, b) for a, b in ((u, w), (w, u))]
        allowed = ADJOINT_ROUNDINGS * run.eps * sum(absolute for _, absolute in both) + run.least_difference
        noise = [0.0, 0.0]
        for beside in jittered(rng, x, run.eps):
            there = [_product(run, beside, a, b)[0] for a, b in ((u, w), (w, u))]
            noise = [max(n, abs(t - h)) for n, t, (h, _) in zip(noise, there, both, strict=True)]
        gap = abs(both[0][0] - both[1][0])
        if not gap > allowed + NOISE_FACTOR * sum(noise):  # so written that nan is no violation
            return
        seen = seen or (both[0][0], both[1][0])
    assert seen is not None  # every attempt was a violation
    yield Finding(
        Symptom.WRONG_SECOND_DERIVATIVE,
        run.subject.names[0],
        *apart(*seen),
        2,
        "rev-rev",
        explanation="along u and then w, and along w and then u, the second derivatives differ: "
        "the gradient is none of any function, or its backward is wrong",
    )


def _product(run: Run, x: Tensors, u: Tensors, w: Tensors) -> tuple[float, float]:
    """Give <H u, w> in the precision given, and the sum of the sizes of its terms."""
    terms = flat(run.subject.second(x, run.v, u).hessian_u) * flat(w)
    return float(terms.sum()), float(np.abs(terms).sum())


def _recorded_part(run: Run, second: Second) -> Array:
    """The direction of the double backward without the inputs whose gradient carries no graph: they gave it nothing."""
    u = flat(run.second_along)
    for part, detached in zip(segments(run.second_along), second.detached, strict=True):
        if detached:
            u[part] = 0.0
    return u


def _noise(run: Run, r: Tensors) -> tuple[Array, Array]:
    """What two roundings of the inputs, of u and of r do to P and to G(x, r), in the precision given."""
    rng, u = run.rng(JITTER), run.second_along
    noise = [np.zeros(flat(t).size) for t in (run.v, run.subject.wrt)]
    reference: list[Array] | None = None
    points = (
        (run.subject.point, u, r),
        *zip(*(jittered(rng, t, run.eps) for t in (run.subject.point, u, r)), strict=True),
    )
    for x_there, u_there, r_there in points:
        second = run.subject.second(x_there, run.v, u_there)
        both = [flat(second.jacobian_u), flat(run.gradients_at(x_there, r_there))]
        if reference is None:
            reference = both
        noise = [np.fmax(n, np.abs(b - a)) for n, a, b in zip(noise, reference, both, strict=True)]
    return noise[0], noise[1]


def _violation(run: Run, second: Second, r: Tensors, there: Array, allowed: float) -> Finding:
    """Say which side is at fault: a G that is not linear in v, or a P that lost some of it."""
    leaves, outputs = second.leaves, second.outputs

    def gradient(v: Tensors) -> Array:
        return flat(materialize(backward(outputs, leaves, v, retain_graph=True), leaves))

    u = _recorded_part(run, second)
    here = gradient(run.v)
    both = gradient(tuple(a + b for a, b in zip(run.v, r, strict=True)))
    gap = np.abs(both - here - there)
    if gap @ np.abs(u) > allowed:
        k = int((gap * np.abs(u)).argmax())
        name, element = element_of(run.subject.wrt, run.subject.names, k)
        zero = gradient(tuple(g * 0 for g in run.v))
        text = "a grad_output of zeros gives a gradient that is not zero" if zero.any() else "it depends on its size"
        return Finding(
            Symptom.WRONG_GRADIENT,
            name,
            *apart(float(both[k]), float(here[k] + there[k])),
            1,
            "rev",
            element,
            f"the gradient is not linear in its grad_output: {text}; got for v + r, want the sum of those for v and r",
        )
    p = flat(second.jacobian_u)
    blocks = [float(np.abs(p[part]).max(initial=0.0)) for part in segments(run.v)]
    output = int(np.argmin(blocks))
    got, want = apart(float(p @ flat(r)), float(there @ u))
    symptom = Symptom.DETACHED if not p.any() else Symptom.WRONG_SECOND_DERIVATIVE
    return Finding(
        symptom,
        f"grad_output {output}",
        got,
        f"{want}, by another backward (along a direction)",
        2,
        "rev-rev",
        explanation="; ".join(text for text in (LOST, explain.lost(run)) if text),
    )
