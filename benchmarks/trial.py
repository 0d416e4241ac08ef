"""One campaign on one function of a zoo, in a process of its own that may die or be killed."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from gradfuzz.campaign import server

if TYPE_CHECKING:
    from benchmarks.bridge import Entry, Which
    from gradfuzz.campaign import Finding

# Starting a process, a last shrink and the replay of what was found come on top of a campaign's own seconds.
GRACE_SECONDS = 40.0

# Imported once by the server that trials are forked from: torch alone takes seconds.
PRELOAD = [
    *server.PRELOAD,
    "gradfuzz.campaign.run",
    "gradfuzz.corpus",
    "benchmarks.bridge",
]


@dataclass(frozen=True, slots=True)
class Sighting:
    """One finding of a trial.

    Attributes:
        signature: The identity of the defect.
        symptom: The name of the symptom.
        mode: The mode of differentiation, or empty.
        seconds: Seconds from the start of the search to the first case that showed it.
        cases: Cases up to and including that one.
        text: Got and want, on a line.
        replays: Whether the saved reproducer fails the same way when it is replayed.
        excused: Whether it is known to be torch's own and not the function's.
    """

    signature: str
    symptom: str
    mode: str
    seconds: float
    cases: int
    text: str
    replays: bool = False
    excused: bool = False


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of one campaign.

    Attributes:
        sightings: The findings, in the order in which they were seen.
        cases: Cases judged.
        rejected: Cases that the function refused.
        inconclusive: Cases without an answer.
        ending: How the process ended where it did not end by itself, or why the search broke off; else empty.
    """

    sightings: tuple[Sighting, ...] = ()
    cases: int = 0
    rejected: int = 0
    inconclusive: int = 0
    ending: str = ""

    @property
    def found(self) -> Sighting | None:
        """The first finding that replays."""
        return next((sighting for sighting in self.sightings if sighting.replays), None)

    @property
    def alarms(self) -> tuple[Sighting, ...]:
        """The findings that nobody but the function could be blamed for."""
        return tuple(sighting for sighting in self.sightings if not sighting.excused)


def run(folder: Path, name: str, which: Which, *, seconds: float, seed: int) -> Trial:
    """Run the campaign in a new process; a faulty function's ends with its first finding."""
    for variable, value in server.environment().items():
        os.environ.setdefault(variable, value)
    context = get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    ours, theirs = context.Pipe(duplex=False)
    with TemporaryDirectory(prefix="gradfuzz-zoo-") as corpus:
        process = context.Process(target=_search, args=(theirs, folder, name, which, seconds, seed, Path(corpus)))
        process.start()
        theirs.close()
        trial = _listen(ours, time.monotonic() + seconds + GRACE_SECONDS)
        if trial is None:
            process.kill()
        process.join()
    if trial is None:
        return Trial(ending=f"killed: no end after {seconds + GRACE_SECONDS:g} s")
    if process.exitcode:
        return replace(trial, ending=f"died: exit code {process.exitcode}")
    return trial


def _listen(connection: Connection, until: float) -> Trial | None:
    """Give the last trial that was told before the other side closed, or None if it did not by then."""
    trial = Trial()
    while connection.poll(max(0.0, until - time.monotonic())):
        try:
            trial = connection.recv()
        except EOFError:
            return trial
    return None


def _search(
    connection: Connection, folder: Path, name: str, which: Which, seconds: float, seed: int, corpus: Path
) -> None:
    import gradfuzz
    from benchmarks import bridge
    from gradfuzz.campaign.event import Event, FindingNew

    entry = next(entry for entry in bridge.load(folder) if entry.name == name)
    target = bridge.target(entry, which)
    seen: list[Sighting] = []

    def note(event: Event) -> None:
        if isinstance(event, FindingNew):
            seen.append(_sighting(event.finding, entry, which))
            connection.send(Trial(tuple(seen), event.finding.cases_to_find))

    result = gradfuzz.fuzz(
        target,
        seconds=seconds,
        seed=seed,
        corpus=corpus,
        max_failures=1 if which == "faulty" else None,
        on_event=note,
    )
    sightings = []
    for finding in result.findings:
        statuses = [outcome.status for outcome in gradfuzz.replay(finding.path, target)] if finding.path else []
        sighting = _sighting(finding, entry, which)
        sightings.append(replace(sighting, replays=statuses == ["fails"]))
    ending = "; ".join(result.errors)
    connection.send(Trial(tuple(sightings), result.cases, result.rejected, result.inconclusive, ending))
    connection.close()


def _sighting(finding: Finding, entry: Entry, which: Which) -> Sighting:
    from benchmarks import bridge

    return Sighting(
        signature=finding.signature,
        symptom=finding.symptom.value,
        mode=finding.mode,
        seconds=finding.seconds_to_find,
        cases=finding.cases_to_find,
        text=str(finding),
        excused=which == "fixed" and bridge.blames_torch(entry, finding.mode),
    )
