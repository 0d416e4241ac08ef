"""What torch keeps for the whole process and a call must leave as it was."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from gradfuzz.checker.run import Run
from gradfuzz.checker.state import GlobalState
from gradfuzz.checker.verdict import Finding, Symptom

NAMES = tuple(f.name for f in fields(GlobalState))


def state_is_kept(run: Run) -> Iterator[Finding]:
    """Modes, default dtype and device, thread count, seed and debugging switches are left as they were.

    After forward and backward, and again after double backward and forward mode, where they have been run by now.
    """
    before, after = run.base.state_before, run.base.state_after
    if before is None or after is None:
        return
    found = False
    for stage, now in (("call", after), ("second derivative", GlobalState.now())):
        for name in NAMES:
            old, new = getattr(before, name), getattr(now, name)
            # Calls of a random function are seeded in between.
            if old != new and not (name == "seed" and stage != "call" and run.subject.random):
                found = True
                yield Finding(
                    Symptom.GLOBAL_STATE, name.replace("_", " "), f"{new} after the {stage}", f"{old}, as before"
                )
        if found:
            return
