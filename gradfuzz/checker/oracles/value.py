"""The value does not depend on whether a gradient is asked for."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from gradfuzz.checker.evaluation import ForwardRaised, flat
from gradfuzz.checker.naming import element_of
from gradfuzz.checker.oracles.metamorphic import value_differs
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
    differs = value_differs(run, got, want)
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
