"""How often a correct function is accused, beside torch's checkers: ``python -m benchmarks.false_alarms``."""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatch
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import click
import torch
from torch.autograd import gradcheck, gradgradcheck

from benchmarks import catalogue, plain
from benchmarks.explained import explained
from gradfuzz.checker import Status, Verdict, check
from gradfuzz.errors import CheckError

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.complex128)
# Samples of each catalogue entry and draws of each plain function and family, so that all come to 20,000 and more.
SAMPLES, DRAWS = 12, 10
# A call that has not come back by then is killed with its process, and the sweep goes on with the next function.
MOST_SECONDS = 120.0
PEER = "torch's gradcheck or gradgradcheck fails"


@dataclass(frozen=True, slots=True)
class Task:
    """All calls of one function with one dtype.

    Attributes:
        source: ``catalogue`` or the family of a plain function's inputs.
        name: The function.
        dtype: The dtype of its inputs, by torch's name.
    """

    source: str
    name: str
    dtype: str

    def calls(self, samples: int, draws: int) -> Iterator[tuple[Callable[..., Any], Sequence[Any]]]:
        """Make the calls."""
        dtype = getattr(torch, self.dtype)
        if self.source == "catalogue":
            (entry,) = [e for e in catalogue.entries(dtype) if catalogue.name_of(e) == self.name]
            for call in catalogue.calls(entry, dtype, samples):
                yield call.function, call.arguments
        else:
            (function,) = [p for p in plain.PLAIN if p.name == self.name]
            for seed in range(draws):
                yield function.function, function.inputs(self.source, dtype, seed)


@dataclass(slots=True)
class Tally:
    """What came of a task.

    Attributes:
        counts: Checks by the status of their verdict; ``refused`` is a misuse, ``peer`` what torch's checkers fail.
        findings: By ``function|symptom|order|mode``, the first finding of it.
        reasons: Why something was inconclusive, how often.
        ending: How the process ended if not by itself.
    """

    counts: Counter[str] = field(default_factory=Counter)
    findings: dict[str, str] = field(default_factory=dict)
    reasons: Counter[str] = field(default_factory=Counter)
    ending: str = ""

    def note(self, name: str, verdict: Verdict) -> None:
        """Count one verdict."""
        self.counts[verdict.status.value] += 1
        if verdict.status is Status.INCONCLUSIVE:
            self.reasons[verdict.reason.split(":")[0]] += 1
        for finding in verdict.findings:
            key = "|".join((name, finding.symptom.value, str(finding.order), finding.mode))
            self.findings.setdefault(key, str(finding))

    def add(self, other: Tally) -> None:
        """Take in what came of other calls of the same task."""
        self.counts += other.counts
        self.findings = other.findings | self.findings
        self.reasons += other.reasons
        self.ending = other.ending or self.ending

    def record(self) -> dict[str, Any]:
        """Give it as plain data."""
        return {
            "counts": dict(self.counts),
            "findings": self.findings,
            "reasons": dict(self.reasons),
            "ending": self.ending,
        }


def tasks(dtypes: Sequence[torch.dtype], only: str, *, samples: int, draws: int) -> list[Task]:
    """Give everything there is to look at, in a fixed order."""
    result: list[Task] = []
    for dtype in dtypes:
        name = str(dtype).removeprefix("torch.")
        if samples:
            result += [Task("catalogue", catalogue.name_of(e), name) for e in catalogue.entries(dtype, only=only)]
        for family in plain.FAMILIES if draws else ():
            matching = [p for p in plain.PLAIN if p.takes(dtype) and fnmatch(p.name, only)]
            result += [Task(family, p.name, name) for p in matching]
    return result


def judge(task: Task, *, samples: int, draws: int, peer: bool, seed: int) -> Iterator[Tally]:
    """Check every call of a task, each with a seed of its own; give what came of each."""
    for own, (function, arguments) in enumerate(task.calls(samples, draws), start=seed):
        tally = Tally()
        try:
            tally.note(task.name, check(function, arguments, seed=own))
        except CheckError as refusal:
            tally.counts["refused"] += 1
            tally.reasons[str(refusal)] += 1
        if peer:
            tally.counts["peer"] += _peer_fails(function, arguments)
        yield tally


def _peer_fails(function: Callable[..., Any], arguments: Sequence[Any]) -> bool:
    """Whether torch's own checkers, at unchanged defaults, fail a call; what they refuse to look at is no failure."""
    try:
        inputs = tuple(arguments)
        return not (
            gradcheck(function, inputs, raise_exception=False)
            and gradgradcheck(function, inputs, raise_exception=False)
        )
    except Exception:  # a refusal by whatever exception: complex outputs, sparse inputs, no gradient
        return False


def _serve(connection: Connection, options: dict[str, Any]) -> None:
    """Judge task after task; the other side kills this process where one does not come back."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    while (task := connection.recv()) is not None:
        try:
            for tally in judge(task, **options):
                connection.send(tally)
        except Exception as error:  # whatever an entry's own samples raise ends that entry alone
            connection.send(Tally(ending=f"{type(error).__name__}: {error}"[:200]))
        connection.send(None)


class Worker:
    """A process that judges, replaced when it dies or does not answer."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self._start()

    def _start(self) -> None:
        context = get_context("fork")
        self.ours, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, self.options), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, task: Task) -> Tally:
        """Judge a task; its ending is said where the process did not survive it, and what came of the calls before."""
        whole = Tally()
        self.ours.send(task)
        while self.ours.poll(MOST_SECONDS):
            try:
                tally: Tally | None = self.ours.recv()
            except EOFError:
                self.process.join()
                whole.ending = f"died: exit code {self.process.exitcode}"
                break
            if tally is None:
                return whole
            whole.add(tally)
        else:
            whole.ending = f"killed: no answer in {MOST_SECONDS:g} s"
        self.process.kill()
        self._start()
        return whole


_ROW = "{:<11} {:<10} {:>8} {:>8} {:>7} {:>13} {:>9} {:>8} {:>8}"


def table(rows: dict[tuple[str, str], Counter[str]], *, peer: bool) -> Iterator[str]:
    """Give the lines of the table, the sums last."""
    yield _ROW.format("dtype", "inputs", "checks", "pass", "fail", "inconclusive", "rejected", "refused", "torch's")
    everything: Counter[str] = Counter()
    for (dtype, source), counts in rows.items():
        everything += counts
        yield _line(dtype, source, counts, peer=peer)
    yield _line("all", "", everything, peer=peer)


def _line(dtype: str, source: str, counts: Counter[str], *, peer: bool) -> str:
    checks = sum(counts[s.value] for s in Status)
    share = f"{counts['inconclusive']} ({100 * counts['inconclusive'] / max(checks, 1):.1f} %)"
    theirs = counts["peer"] if peer else "-"
    shown = (checks, counts["pass"], counts["fail"], share, counts["rejected"], counts["refused"], theirs)
    return _ROW.format(dtype, source, *shown)


@click.command(context_settings={"max_content_width": 110})
@click.option("--dtype", "names", multiple=True, help="By torch's name; repeatable. All four by default.")
@click.option("--samples", default=SAMPLES, show_default=True, help="Of each catalogue entry.")
@click.option("--draws", default=DRAWS, show_default=True, help="Of each plain function and family.")
@click.option("--only", default="*", help="A pattern of function names.")
@click.option("--seed", default=1, show_default=True, help="Of the first check of each function; 1 more for each.")
@click.option("--peer/--no-peer", default=False, help="Ask torch's own checkers on the same inputs.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write everything to this file.")
def main(
    *, names: tuple[str, ...], samples: int, draws: int, only: str, seed: int, peer: bool, path: Path | None
) -> None:
    """Check the entries of torch's op catalogue and plain functions, all of them supposed to be right."""
    dtypes = [getattr(torch, name) for name in names] or list(DTYPES)
    options = {"samples": samples, "draws": draws, "peer": peer, "seed": seed}
    rows: dict[tuple[str, str], Counter[str]] = {}
    findings: dict[str, str] = {}
    records = []
    began = time.monotonic()
    plans = tasks(dtypes, only, samples=samples, draws=draws)  # loads the catalogue before workers are forked
    worker = Worker(options)
    for task in plans:
        tally = worker.ask(task)
        rows.setdefault((task.dtype, task.source), Counter()).update(tally.counts)
        records.append({**asdict(task), **tally.record()})
        if tally.ending:
            click.echo(f"{task.name} ({task.dtype}, {task.source}): {tally.ending}")
        for key, text in tally.findings.items():
            if key not in findings:
                findings[key] = f"{text} ({task.dtype}, {task.source})"
    for line in table(rows, peer=peer):
        click.echo(line)
    unknown = {key: text for key, text in findings.items() if explained(key) is None}
    by_definition = sum(1 for key in findings if (entry := explained(key)) is not None and not entry.real)
    for key, text in unknown.items():
        click.echo(f"UNEXPLAINED {key}: {text}")
    click.echo(
        f"{len(findings)} distinct findings: {len(findings) - len(unknown) - by_definition} defects, "
        f"{by_definition} by definition, {len(unknown)} unexplained; {time.monotonic() - began:.0f} s"
    )
    if path is not None:
        path.write_text(json.dumps(records, indent=1) + "\n", encoding="utf-8")
    sys.exit(bool(unknown))


if __name__ == "__main__":
    main()
