"""The value does not depend on whether a gradient is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gradfuzz.checker.evaluation import ForwardRaised, flat
from gradfuzz.checker.naming import apart, element_of
from gradfuzz.checker.oracles.metamorphic import value_differs
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


def value_is_the_same_without_gradients(run: Run) -> Iterator[Finding]:
    """Inputs that ask for no gradient, under no_grad, give the outputs that training gives.

    Whatever a function asks, the inputs or the mode, says no here. Inference mode is not tried: what a function
    keeps from a call in it (a table, a window) can never be saved for a backward again.
    """
    try:
        with torch.no_grad():
            got = flat(run.subject.forward(None, wanted=(False,) * len(run.subject.wrt))[1])
    except ForwardRaised:
        return
    outputs = run.base.outputs
    want = flat(outputs)
    if got.shape != want.shape:
        return
    # Inference may take another kernel: what rounding of the inputs does to the value is allowed as well.
    differs = value_differs(run, got, want)
    if differs.any():
        k = int(np.flatnonzero(differs)[0])
        name, element = element_of(outputs, [f"output {i}" for i in range(len(outputs))], k)
        shown, wanted = apart(float(got[k]), float(want[k]))
        yield Finding(
            Symptom.VALUE_CHANGES, name, f"{shown} without gradients", f"{wanted}, as with gradients", 0, "", element
        )
