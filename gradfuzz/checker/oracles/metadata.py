"""What a gradient is beside its numbers: shape, dtype, device."""

from __future__ import annotations

from collections.abc import Iterator

from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


def gradients_fit(run: Run) -> Iterator[Finding]:
    """A gradient has its input's shape, dtype and device; a second derivative shape and device."""
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
    second = run.second
    if second is None:
        return
    names = [*run.subject.names, *(f"grad_output {i}" for i in range(len(run.v)))]
    for grad, x, name in zip((*second.hessian_u, *second.jacobian_u), (*run.subject.wrt, *run.v), names, strict=True):
        if grad.shape != x.shape or grad.device != x.device:
            shown, wanted = (f"shape {tuple(t.shape)} on {t.device}" for t in (grad, x))
            yield Finding(Symptom.METADATA, name, shown, wanted, 2, "rev-rev")
