"""Two runs of the same function that must agree: how far they may differ, and the findings where they differ more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

import numpy as np

from gradfuzz.checker.direction import JITTER, Mask, scales
from gradfuzz.checker.evaluation import Array, BackwardRaised, ForwardRaised, Tensors, flat, unflat
from gradfuzz.checker.line import JITTER_DRAWS, JITTER_ROUNDINGS
from gradfuzz.checker.naming import apart, element_of, one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# Another layout may sum in another order: a thousand roundings of the largest element, and 16 times what two
# roundings of the inputs do to the gradient.
ROUNDINGS = 1e3
NOISE_FACTOR = 16
# Where a gradient cancels to nothing, its rounding is that of its natural scale, |F| |v| / |x|: 16 roundings of
# it, and in double nothing that a maintainer would act on.
NATURAL_ROUNDINGS = 16
NATURAL_INSIGNIFICANT = 1e-10


def differing(run: Run, got: Array, want: Array) -> Mask:
    """The elements of G by which two runs differ beyond rounding, as a mask; nan equals nan."""
    with np.errstate(all="ignore"):
        scale = np.abs(np.where(np.isfinite(want), want, 0.0)).max(initial=0.0)
        allowed = np.full(len(want), ROUNDINGS * run.eps * scale + run.nondet_tol + run.least_difference)
        differs = beyond(got, want, allowed)
        if differs.any():
            differs = beyond(got, want, allowed + NOISE_FACTOR * run.gradient_noise() + _natural(run))
    return np.asarray(differs)


def _natural(run: Run) -> Array:
    sizes = [np.abs(flat(t)).max(initial=0.0, where=np.isfinite(flat(t))) for t in (run.base.outputs, run.v)]
    per_input = np.maximum(scales(run.subject.point), np.finfo(float).tiny)
    return np.asarray(max(NATURAL_ROUNDINGS * run.eps, NATURAL_INSIGNIFICANT) * sizes[0] * sizes[1] / per_input)


def beyond(got: Array, want: Array, allowed: Array | float) -> Mask:
    """The elements that differ by more than `allowed`, as a mask; nan equals nan and inf itself."""
    both_nan = np.isnan(got) & np.isnan(want)
    return np.asarray(~((np.abs(got - want) <= allowed) | (got == want) | both_nan))


def value_differs(run: Run, got: Array, want: Array) -> Mask:
    """Tell by element whether two values of F differ by more than rounding of the inputs explains."""
    with np.errstate(all="ignore"):
        allowed = ROUNDINGS * run.eps * _largest(want) + run.least_difference
        differs = beyond(got, want, allowed)
        return beyond(got, want, allowed + NOISE_FACTOR * _noise(run, want)) if differs.any() else differs


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))


def _noise(run: Run, want: Array) -> Array:
    """What two roundings of the inputs do to the value, by element."""
    rng = run.rng(JITTER)
    point = run.subject.point
    x = flat(point)
    noise = np.zeros_like(want)
    for _ in range(JITTER_DRAWS):
        factors = 1 + rng.choice((-1.0, 1.0), len(x)) * JITTER_ROUNDINGS * run.eps
        with np.errstate(all="ignore"), suppress(ForwardRaised):
            noise = np.fmax(noise, np.abs(flat(run.subject.value(unflat(x * factors, point))) - want))
    return noise


def compare_gradients(
    run: Run,
    symptom: Symptom,
    want: Tensors,
    other: Callable[[], Tensors],
    *,
    where: str = "",
    explanation: str,
) -> Iterator[Finding]:
    """Yield a finding where `other` raises in backward or differs from `want`; a refusal of forward is none."""
    try:
        got = flat(other())
    except ForwardRaised:
        return
    except BackwardRaised as error:
        yield Finding(
            symptom,
            where or "backward",
            one_line(error.error),
            "the same gradients",
            1,
            "rev",
            explanation=explanation,
            exception=type(error.error).__name__,
        )
        return
    reference = flat(want)
    if got.shape != reference.shape:
        return
    differs = differing(run, got, reference)
    if not differs.any():
        return
    with np.errstate(all="ignore"):
        k = int(np.nan_to_num(np.abs(np.where(differs, got - reference, 0.0)), nan=np.inf).argmax())
    name, element = element_of(run.subject.wrt, run.subject.names, k)
    yield Finding(
        symptom,
        where or name,
        *apart(float(got[k]), float(reference[k])),
        1,
        "rev",
        element if not where else "",
        explanation if not where else f"{explanation}; seen at {name}, element {element}",
    )
