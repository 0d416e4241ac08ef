"""How often planted faults are found, by this check and by torch's own: ``python -m benchmarks.detection``."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

# Before torch is imported: everything here is too small for threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import click
import torch

import gradfuzz
from benchmarks.faults import PLANTED
from benchmarks.planted import Inputs, Planted
from gradfuzz.checker.verdict import Finding

DRAWS = 10

# Columns: name, found by each, false alarms of each, and the symptom seen most often.
_ROW = "{:<34}{:>10}{:>8}{:>8}   {:>10}{:>8}{:>8}   {}"


@dataclass(frozen=True, slots=True)
class Count:
    """How many draws each checker objected to.

    Attributes:
        gradfuzz: This check.
        slow: torch's gradcheck and gradgradcheck.
        fast: The same in fast mode.
    """

    gradfuzz: int = 0
    slow: int = 0
    fast: int = 0

    def __add__(self, other: Count) -> Count:
        """Add counts."""
        return Count(self.gradfuzz + other.gradfuzz, self.slow + other.slow, self.fast + other.fast)


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one fault over all draws.

    Attributes:
        name: The fault.
        draws: How many inputs were drawn.
        found: Draws in which the faulty function was objected to.
        alarms: Draws in which its correct twin was.
        inconclusive: Draws in which this check could not tell of the twin.
        symptom: What this check said most often.
        alarm: What it said of the twin, if anything.
        peers: Whether torch's own checks were asked.
    """

    name: str
    draws: int
    found: Count
    alarms: Count
    inconclusive: int
    symptom: str
    alarm: str = ""
    peers: bool = True

    def __str__(self) -> str:
        """Show the row on one line."""
        shown = ("gradfuzz", "slow", "fast") if self.peers else ("gradfuzz",)
        missing = ["-"] * (3 - len(shown))
        found = [*(f"{100 * getattr(self.found, who) / self.draws:.0f} %" for who in shown), *missing]
        alarms = [*(getattr(self.alarms, who) for who in shown), *missing]
        remarks = [self.symptom]
        if self.inconclusive:
            remarks.append(f"inconclusive of the twin: {self.inconclusive}")
        if self.alarm:
            remarks.append(f"ALARM {self.alarm}")
        return _ROW.format(self.name, *found, *alarms, "; ".join(remarks)).rstrip()


def objections(function: Callable[..., Any], inputs: Inputs) -> tuple[str, list[Finding]]:
    """Judge one call; findings that are torch's own are left out.

    torch loses the outer tangent of every Function with a jvp in nested forward mode, correct ones too.
    """
    verdict = gradfuzz.check(function, inputs)
    return verdict.status.value, [f for f in verdict.findings if f.mode != "fwd-fwd"]


def peer_objects(function: Callable[..., Any], inputs: Inputs, *, fast: bool) -> bool:
    """Whether torch's gradcheck or gradgradcheck, with their defaults, objects or raises."""
    try:
        return not (
            torch.autograd.gradcheck(function, inputs, fast_mode=fast, raise_exception=False)
            and torch.autograd.gradgradcheck(function, inputs, fast_mode=fast, raise_exception=False)
        )
    except Exception:  # what a checker raises is how it objects
        return True


def row(fault: Planted, *, draws: int, peers: bool = True) -> Row:
    """Draw inputs and show them, and the fault and its twin, to every checker."""
    found, alarms, inconclusive = Count(), Count(), 0
    symptoms: Counter[str] = Counter()
    alarm = ""
    for k in range(draws):
        for function, faulty in ((fault.faulty, True), (fault.correct, False)):
            inputs = fault.draw(torch.Generator().manual_seed(k))
            status, findings = objections(function, inputs)
            seen = [
                peers and peer_objects(function, fault.draw(torch.Generator().manual_seed(k)), fast=fast)
                for fast in (False, True)
            ]
            count = Count(bool(findings), *map(int, seen))
            if faulty:
                found += count
                symptoms.update(f.symptom.value for f in findings[:1])
            else:
                alarms += count
                inconclusive += status == "inconclusive"
                alarm = alarm or (f"draw {k}: {findings[0]}" if findings else "")
    symptom = symptoms.most_common(1)[0][0] if symptoms else ""
    return Row(fault.name, draws, found, alarms, inconclusive, symptom, alarm, peers)


def total(rows: Sequence[Row]) -> str:
    """Say how many kinds each checker found in every draw, in some, and how many false alarms it raised."""
    lines = []
    for who in ("gradfuzz", "slow", "fast") if all(r.peers for r in rows) else ("gradfuzz",):
        counts = [(getattr(r.found, who), r.draws) for r in rows]
        always, ever = sum(n == draws for n, draws in counts), sum(n > 0 for n, _ in counts)
        share = sum(n / draws for n, draws in counts) / len(rows)
        alarms = sum(getattr(r.alarms, who) for r in rows)
        checks = sum(r.draws for r in rows)
        name = who if who == "gradfuzz" else f"torch {who}"
        lines.append(
            f"{name:<12} found {always} of {len(rows)} kinds in every draw, {ever} in some, {100 * share:.0f} % of all "
            f"draws; {alarms} alarms on {checks} correct ones"
        )
    return "\n".join(lines)


@click.command(context_settings={"max_content_width": 110})
@click.option("--draws", default=DRAWS, show_default=True, type=click.IntRange(min=1), help="Inputs for each fault.")
@click.option("--only", multiple=True, help="Name of a fault; repeatable.")
@click.option("--peers/--no-peers", default=True, show_default=True, help="Whether torch's own checks are asked too.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write the rows to this file.")
def main(*, draws: int, only: tuple[str, ...], peers: bool, path: Path | None) -> None:
    """Show planted faults and their correct twins to this check and to torch's slow and fast modes."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = [fault.name for fault in PLANTED]
    if unknown := [name for name in only if name not in known]:
        raise click.ClickException(f"--only {unknown[0]!r} is no fault here; known are {', '.join(known)}")
    click.echo(_ROW.format("", "found by", "torch", "torch", "alarms of", "torch", "torch", ""))
    click.echo(_ROW.format("fault", "gradfuzz", "slow", "fast", "gradfuzz", "slow", "fast", "symptom"))
    rows = []
    for fault in PLANTED:
        if not only or fault.name in only:
            rows.append(row(fault, draws=draws, peers=peers))
            click.echo(str(rows[-1]))
    click.echo(total(rows))
    if path is not None:
        path.write_text(json.dumps([asdict(r) for r in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
