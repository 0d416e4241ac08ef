"""Forward-mode AD: the tangent along u is the Jacobian times u."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import reduce

import numpy as np

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import FORWARD, Rng, direction, jittered
from gradfuzz.checker.evaluation import (
    Array,
    First,
    ForwardRaised,
    Second,
    Tensors,
    flat,
    segments,
)
from gradfuzz.checker.line import neighbour, sample
from gradfuzz.checker.naming import against, element_of, one_line
from gradfuzz.checker.nested import push, raised_in_a_jvp
from gradfuzz.checker.numeric import Answer
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# A tangent that is right agrees with the difference quotient as well as reverse mode does; twice, beside the
# point too, so that a kink (where the two modes may choose different answers) accuses nobody.
TRIES = 2
# Another formula for the same number rounds in another order.
ROUNDINGS = 1e3


def forward_mode_agrees(run: Run) -> Iterator[Finding]:
    """jvp(u) equals what differences of the function say, at the point or beside it."""
    if run.agreed is not None and run.agreed.forward:
        return
    rng = run.rng(FORWARD)
    if not flat(run.x).size:
        return
    if _matches_reverse_mode(run):
        return
    found: Finding | None = None
    for attempt in range(TRIES):
        x = run.x if attempt == 0 else neighbour(run.x, rng, 0.02)
        u = direction(rng, x, run.allowed_inputs)
        try:
            got = push(run.context.subject, x, u)
            ladders, noise = _sampled(run, x, u, rng)
        except ForwardRaised as refusal:
            if raised_in_a_jvp(refusal.error):
                yield Finding(
                    Symptom.FORWARD_MODE,
                    "forward",
                    one_line(refusal.error),
                    "a tangent",
                    1,
                    "fwd",
                    exception=type(refusal.error).__name__,
                    explanation="raised in a jvp",
                )
            return
        finding = _compare(run, ladders, flat(got), noise)
        if finding is None:
            return
        found = found or finding
    if found is not None:
        yield found


def _matches_reverse_mode(run: Run) -> bool:
    """Whether the tangent equals the Jacobian that reverse mode gave and differences confirmed: the usual case."""
    if run.agreed is None or not isinstance(run.agreed.analytic, Second):
        return False
    nested = run.nested()
    got = nested.tangent
    if got is None:  # nothing to compare, unless a rule was meant to be there
        return not raised_in_a_jvp(nested.missing["fwd"])
    return bool((np.abs(flat(got) - (want := flat(run.agreed.analytic.jacobian_u))) <= rounding(run, want)).all())


def rounding(run: Run, want: Array) -> float:
    """A thousand roundings of the largest element: what another way to the same derivative may cost."""
    return ROUNDINGS * run.context.eps * float(np.abs(want).max(initial=0.0))


def _sampled(run: Run, x: Tensors, u: Tensors, rng: Rng) -> tuple[list[numeric.Samples], Array]:
    """Sample F along u on every ladder, with the jitter of F; no backward takes part."""
    context = run.context
    subject = context.subject
    centre = subject.value(x)
    noise = np.zeros(len(flat(centre)))
    for moved in jittered(rng, x, context.eps):
        with np.errstate(all="ignore"), suppress(ForwardRaised):
            noise = np.fmax(noise, np.abs(flat(subject.value(moved)) - flat(centre)))
    first = First(centre, (None,) * len(x), x)
    ladders = []
    for spec in (numeric.SCREEN, numeric.WIDE, numeric.FINE):
        ladders.append(sample(context, x, u, (), first, context.spec(spec), gradients=False)[0])
    return ladders, noise


def _compare(run: Run, ladders: list[numeric.Samples], got: Array, noise: Array) -> Finding | None:
    """Find the output element whose tangent contradicts the difference quotient most clearly."""
    eps = run.context.eps
    outputs = run.weights
    estimates = [numeric.central(samples, noise=noise, eps=eps) for samples in ladders]
    estimate = reduce(numeric.Estimate.or_sharper, estimates)
    samples = ladders[-1]
    comparison = numeric.compare(
        got,
        estimate,
        segments(outputs),
        jitter=np.zeros(len(got)),
        natural=samples.largest,
        least_scale=np.zeros(len(got)),
        eps=eps,
        rtol=run.tolerance.rtol,
        atol=run.tolerance.atol,
    )
    kinked = np.logical_or.reduce([numeric.not_smooth(ladder, noise=noise, eps=eps) for ladder in ladders])
    kinked |= ~numeric.confirmed_by_short_steps(samples, got, estimate.value, noise=noise, eps=eps)
    wrong = (comparison.answers == Answer.CONTRADICTS) & ~kinked & np.isfinite(samples.centre) & np.isfinite(got)
    if run.allowed_outputs is not None:
        wrong &= run.allowed_outputs
    if not wrong.any():
        return None
    k = int(np.where(wrong, np.nan_to_num(comparison.mismatch, nan=0.0), -1.0).argmax())
    name, element = element_of(outputs, [f"output {i}" for i in range(len(outputs))], k)
    shown = against(float(got[k]), float(estimate.value[k]), float(estimate.error[k]))
    return Finding(
        Symptom.FORWARD_MODE,
        name,
        *shown,
        1,
        "fwd",
        element,
        "the tangent is zero" if not got.any() else "",
        mismatch=float(comparison.mismatch[k]),
    )
