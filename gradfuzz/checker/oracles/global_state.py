"""What torch keeps for the whole process and a call must leave as it was."""

from __future__ import annotations

from collections.abc import Iterator

from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


def state_is_kept(run: Run) -> Iterator[Finding]:
    """Grad mode, default dtype, thread count, seed and debugging switches are left as they were."""
    before, after = run.base.state_before, run.base.state_after
    if before is None or after is None:
        return
    for name in ("grad_mode", "default_dtype", "threads", "seed", "deterministic", "anomaly"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield Finding(Symptom.GLOBAL_STATE, name.replace("_", " "), f"{new} after the call", f"{old}, as before")
