"""Forward-mode AD: the tangent along u is the Jacobian times u."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import reduce

import numpy as np
import torch.autograd.forward_ad as fwAD  # torch's documentation calls it so

from gradfuzz.checker import numeric
from gradfuzz.checker.direction import Rng, direction
from gradfuzz.checker.evaluation import (
    Array,
    First,
    ForwardRaised,
    Second,
    Tensors,
    flat,
    materialize,
    segments,
    unflat,
)
from gradfuzz.checker.line import JITTER_DRAWS, JITTER_ROUNDINGS, neighbour, sample
from gradfuzz.checker.naming import against, element_of
from gradfuzz.checker.numeric import Answer
from gradfuzz.checker.run import MODES, Run
from gradfuzz.checker.verdict import Finding, Symptom

# A tangent that is right agrees with the difference quotient as well as reverse mode does; twice, beside the
# point too, so that a kink (where the two modes may choose different answers) accuses nobody.
TRIES = 2


def tangent(run: Run, x: Tensors, u: Tensors) -> Tensors | None:
    """Push u through the function by forward mode; None where some part has no forward rule."""
    with fwAD.dual_level():
        duals = tuple(fwAD.make_dual(p.detach().clone(), t.detach().clone()) for p, t in zip(x, u, strict=True))
        try:
            outputs = run.context.subject.apply(run.context.subject.arguments(duals))
        except ForwardRaised:
            return None
        pairs = [fwAD.unpack_dual(o) for o in outputs]
        return materialize([p.tangent for p in pairs], [p.primal for p in pairs])


def forward_mode_agrees(run: Run) -> Iterator[Finding]:
    """jvp(u) equals what differences of the function say, at the point or beside it."""
    rng = run.rng(MODES)
    if not flat(run.x).size:
        return
    if _matches_reverse_mode(run):
        return
    found: Finding | None = None
    for attempt in range(TRIES):
        x = run.x if attempt == 0 else neighbour(run.x, rng, 0.02)
        u = direction(rng, x, run.allowed_inputs)
        got = tangent(run, x, u)
        if got is None:
            return
        try:
            ladders, noise = _sampled(run, x, u, rng)
        except ForwardRaised:
            return
        finding = _compare(run, ladders, flat(got), noise)
        if finding is None:
            return
        found = found or finding
    if found is not None:
        yield found


def _matches_reverse_mode(run: Run) -> bool:
    """Whether the tangent equals the Jacobian that reverse mode gave and differences confirmed: the usual case."""
    m = run.measured
    if m is None or not m.agrees or not isinstance(m.analytic, Second):
        return False
    got = tangent(run, m.x, m.u)
    if got is None:
        return True  # nothing to compare
    want = flat(m.analytic.jacobian_u)
    with np.errstate(all="ignore"):
        scale = np.abs(np.where(np.isfinite(want), want, 0.0)).max(initial=0.0)
        return bool((np.abs(flat(got) - want) <= 1e3 * run.context.eps * scale).all())


def _sampled(run: Run, x: Tensors, u: Tensors, rng: Rng) -> tuple[list[numeric.Samples], Array]:
    """Sample F along u on every ladder, with the jitter of F; no backward takes part."""
    context = run.context
    subject = context.subject
    centre = subject.value(x)
    values = flat(x)
    noise = np.zeros(len(flat(centre)))
    for _ in range(JITTER_DRAWS):
        factors = 1 + rng.choice((-1.0, 1.0), len(values)) * JITTER_ROUNDINGS * context.eps
        with np.errstate(all="ignore"), suppress(ForwardRaised):
            noise = np.fmax(noise, np.abs(flat(subject.value(unflat(values * factors, x))) - flat(centre)))
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
