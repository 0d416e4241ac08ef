"""The value does not depend on whether a gradient is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import torch

from gradfuzz.checker.evaluation import Array, ForwardRaised, flat, unflat
from gradfuzz.checker.line import JITTER_DRAWS, JITTER_ROUNDINGS
from gradfuzz.checker.naming import element_of
from gradfuzz.checker.oracles.metamorphic import NOISE_FACTOR, ROUNDINGS, beyond
from gradfuzz.checker.run import JITTER, Run
from gradfuzz.checker.verdict import Finding, Symptom


def value_is_the_same_without_gradients(run: Run) -> Iterator[Finding]:
    """Inputs that ask for no gradient, and no_grad, give the outputs that training gives."""
    point = run.subject.point
    try:
        want = flat(run.subject.value(point))
        with torch.no_grad():
            leaves = run.subject.leaves(point, wanted=(False,) * len(point))
            got = flat(run.subject.apply(run.subject.arguments(leaves)))
    except ForwardRaised:
        return
    differs = beyond(got, want, ROUNDINGS * run.eps * _largest(want))
    if differs.any():
        # Inference may take another kernel: what rounding of the inputs does to the value is allowed as well.
        differs = beyond(got, want, ROUNDINGS * run.eps * _largest(want) + NOISE_FACTOR * _noise(run, want))
    if differs.any():
        k = int(np.flatnonzero(differs)[0])
        outputs = run.base.outputs
        name, element = element_of(outputs, [f"output {i}" for i in range(len(outputs))], k)
        yield Finding(
            Symptom.VALUE_CHANGES,
            name,
            f"{got[k]:.6g} without gradients",
            f"{want[k]:.6g}, as with gradients",
            0,
            "",
            element,
        )


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
