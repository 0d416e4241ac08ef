"""The value does not depend on whether a gradient is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gradfuzz.checker.evaluation import ForwardRaised, flat
from gradfuzz.checker.naming import element_of
from gradfuzz.checker.oracles.metamorphic import differing
from gradfuzz.checker.run import Run
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
    # Inference may take another kernel: what rounding of the inputs does to the value is allowed as well.
    differs = differing(run, got, want)
    if differs.any() and _beyond_conditioning(run, got, want):
        k = int(np.flatnonzero(differs)[0])
        outputs = run.base.outputs
        name, element = element_of(outputs, [f"output {i}" for i in range(len(outputs))], k)
        yield Finding(
            Symptom.VALUE_CHANGES, name, f"{got[k]:.6g} without gradients", f"{want[k]:.6g}, as with gradients", 0,
            "", element,
        )  # fmt: skip


def _beyond_conditioning(run: Run, got: np.ndarray, want: np.ndarray) -> bool:  # type: ignore[type-arg]
    """Whether the values differ more than 16 times what two roundings of the inputs change."""
    rng = run.rng(0)
    noise = np.zeros_like(want)
    for _ in range(2):
        moved = tuple(
            p * (1 + torch.from_numpy(rng.choice((-1.0, 1.0), tuple(p.shape))).to(p.device, p.real.dtype) * 2 * run.eps)
            for p in run.subject.point
        )
        try:
            noise = np.fmax(noise, np.abs(flat(run.subject.value(moved)) - want))
        except ForwardRaised:
            continue
    scale = np.abs(np.where(np.isfinite(want), want, 0.0)).max(initial=0.0)
    with np.errstate(all="ignore"):
        return bool(
            (
                ~(np.abs(got - want) <= 16 * noise + 1e3 * run.eps * scale)
                & ~(np.isnan(got) & np.isnan(want))
                & (got != want)
            ).any()
        )
