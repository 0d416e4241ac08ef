"""What a gradient is beside its numbers: shape, dtype, device."""

from __future__ import annotations

from collections.abc import Iterator

from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


def gradients_fit(run: Run) -> Iterator[Finding]:
    """A gradient has its input's shape, dtype and device."""
    for grad, leaf, name in zip(run.base.grads or (), run.base.leaves, run.subject.names, strict=False):
        if grad is None:
            continue
        for what, got, want in (
            ("shape", tuple(grad.shape), tuple(leaf.shape)),
            ("dtype", grad.dtype, leaf.dtype),
            ("device", grad.device, leaf.device),
        ):
            if got != want:
                yield Finding(Symptom.METADATA, name, f"{what} {got}", f"{what} {want}", 1, "rev")
