"""Two runs of the same function that must agree: how far they may differ, and the findings where they differ more."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from gradfuzz.checker.evaluation import Array, BackwardRaised, ForwardRaised, Tensors, flat
from gradfuzz.checker.naming import element_of, one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# Another layout may sum in another order: a thousand roundings of the largest element, and 16 times what two
# roundings of the inputs do to the gradient.
ROUNDINGS = 1e3
NOISE_FACTOR = 16


def differing(run: Run, got: Array, want: Array) -> Array:
    """The elements by which two gradients differ beyond rounding, as a mask; nan equals nan."""
    with np.errstate(all="ignore"):
        scale = np.abs(np.where(np.isfinite(want), want, 0.0)).max(initial=0.0)
        allowed = np.full(len(want), ROUNDINGS * run.eps * scale)
        differs = _beyond(got, want, allowed)
        if differs.any() and len(want) == sum(flat((t,)).size for t in run.subject.wrt):
            differs = _beyond(got, want, allowed + NOISE_FACTOR * run.gradient_noise())
    return np.asarray(differs)


def _beyond(got: Array, want: Array, allowed: Array) -> Array:
    both_nan = np.isnan(got) & np.isnan(want)
    return np.asarray(~((np.abs(got - want) <= allowed) | (got == want) | both_nan))


def compare_gradients(
    run: Run, symptom: Symptom, want: Tensors, other: Callable[[], Tensors], *,
    where: str = "", explanation: str,
) -> Iterator[Finding]:  # fmt: skip
    """Yield a finding where `other` raises in backward or differs from `want`; a refusal of forward is none."""
    try:
        got = flat(other())
    except ForwardRaised:
        return
    except BackwardRaised as error:
        yield Finding(
            symptom, where or "backward", one_line(error.error), "the same gradients", 1, "rev",
            explanation=explanation, exception=type(error.error).__name__,
        )  # fmt: skip
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
        symptom, where or name, f"{got[k]:.6g}", f"{reference[k]:.6g}", 1, "rev",
        element if not where else "", explanation if not where else f"{explanation}; seen at {name}, element {element}",
    )  # fmt: skip
