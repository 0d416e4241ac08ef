"""Memory that a call must leave alone: inputs, grad_outputs, saved tensors."""

from __future__ import annotations

from collections.abc import Iterator

from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


def memory_is_kept(run: Run) -> Iterator[Finding]:
    """Neither forward nor backward writes to an input or a grad_output."""
    for stage, name in run.base.written:
        order = 0 if stage == "forward" else 1
        yield Finding(
            Symptom.MUTATION,
            name,
            f"written to by {stage}",
            "unchanged memory",
            order,
            "" if order == 0 else "rev",
            explanation="whoever else holds this tensor sees the change; work on a copy",
        )
