"""The supervisor: hands targets to child processes and loses nothing when one dies or hangs."""

from __future__ import annotations

import pickle
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from pathlib import Path

from gradfuzz.campaign.child import Child
from gradfuzz.campaign.event import (
    CampaignFinished,
    CampaignStarted,
    Event,
    FindingNew,
    FindingShrunk,
    Progress,
    TargetFinished,
    TargetStarted,
)
from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.result import Result, Tally
from gradfuzz.campaign.settings import Settings
from gradfuzz.campaign.worker import (
    Failed,
    HuntRequest,
    Job,
    Listed,
    ListRequest,
    Message,
    Settled,
    SettleRequest,
    Told,
    Unsettled,
)
from gradfuzz.checker.verdict import Finding as Seen
from gradfuzz.checker.verdict import Symptom
from gradfuzz.errors import CampaignError, TargetError

# A reaction within a tenth of a second looks immediate to a person.
TICK = 0.1

# A fuzzer's cases take milliseconds; one that has not returned by now will not.
HANG_SECONDS = 20.0

# What a child may take beyond its share, a last shrink included, before it counts as stuck.
GRACE_SECONDS = 40.0

# How long children may take to end when a person asks; they end before their next case.
STOP_SECONDS = 3.0

# Of a target's turn, what is searched at least, however long its import takes.
LEAST_OF_TURN = 0.25

# Why a child was killed.
_HANGS, _STUCK, _STOPPED = "a case does not return", "it did not end when its time was over", "the campaign was ended"


def list_jobs(addresses: Sequence[str]) -> list[Job]:
    """Give the targets of some addresses, resolved in a process of its own, since that runs their code."""
    named = ", ".join(addresses)
    message, ending = _ask(ListRequest(tuple(addresses)))
    if isinstance(message, Listed) and message.jobs:
        return list(message.jobs)
    if isinstance(message, Listed):
        raise TargetError(f"{named}: no target there; decorate a function with gradfuzz.target, or name one")
    if isinstance(message, Failed):
        raise TargetError(f"{named}: {message.message}" if message.trace else message.message)
    raise TargetError(f"{named}: importing it ended the process: {ending}")


def greet() -> None:
    """Start a child and hear from it; a CampaignError says why that fails."""
    message, ending = _ask(ListRequest(()))
    if not isinstance(message, Listed):
        raise CampaignError(message.message if isinstance(message, Failed) else ending)


def _ask(request: ListRequest) -> tuple[Message | None, str]:
    """Give the answer of a child, None without one, and how the child ended."""
    with tempfile.TemporaryDirectory(prefix="gradfuzz-") as folder:
        child = Child.start(request, Path(folder))
        try:
            message = child.receive()
        except KeyboardInterrupt:
            child.kill(_STOPPED)
            raise
        finally:
            ending = child.end()
    return message, ending


def supervise(
    jobs: Sequence[Job], settings: Settings, emit: Callable[[Event], None], *, with_cases: bool = False
) -> Result:
    """Search each target in a process of its own, some at a time, and give what was found.

    Ctrl-C ends the campaign early: what was found is on disk and in the result. Findings come with their cases
    on request only: reading one may import the user's code, which the command line keeps out of its process.
    """
    with tempfile.TemporaryDirectory(prefix="gradfuzz-") as folder:
        return Supervisor(jobs, settings, emit, Path(folder), with_cases=with_cases).run()


@dataclass
class Supervisor:
    """A campaign over child processes."""

    jobs: Sequence[Job]
    settings: Settings
    emit: Callable[[Event], None]
    folder: Path
    with_cases: bool = False

    _began: float = field(init=False)
    _waiting: list[Job] = field(init=False)
    _unsettled: list[SettleRequest] = field(init=False, default_factory=list)
    _children: list[Child] = field(init=False, default_factory=list)
    _tallies: dict[str, Tally] = field(init=False)
    # Targets whose search is over; findings of theirs may still be being settled.
    _ended: set[str] = field(init=False, default_factory=set)
    # How long each child took to import its target.
    _startups: list[float] = field(init=False, default_factory=list)
    _stopping: bool = field(init=False, default=False)
    _stopped_at: float = field(init=False, default=0.0)
    _interrupted: bool = field(init=False, default=False)

    def run(self) -> Result:
        """Search until the budget is used up, there is nothing more to do, or a person ends it."""
        self._began = time.monotonic()
        self._waiting = list(self.jobs)
        self._tallies = {job.name: Tally(job.name) for job in self.jobs}
        self.emit(CampaignStarted(tuple(self._tallies), self.settings.seconds, self.settings.seed))
        with _interrupts_told(self._interrupt):
            while self._waiting or self._unsettled or self._children:
                self._start_children()
                self._listen()
                self._watch()
        seconds = time.monotonic() - self._began
        tallies = tuple(self._tallies.values())
        result = Result(self.settings.seed, seconds, tallies, interrupted=self._interrupted)
        self.emit(CampaignFinished(result))
        return result

    def _hunts(self) -> list[Child]:
        return [child for child in self._children if isinstance(child.request, HuntRequest)]

    def _start_children(self) -> None:
        if self._left() <= 0 or self._stopping:
            self._waiting.clear()
        while self._waiting and len(self._hunts()) < self.settings.workers:
            share = self._share()
            self._start(HuntRequest(self._waiting.pop(0), self.settings, share))
        while self._unsettled and len(self._children) < len(self._hunts()) + self.settings.workers:
            self._start(self._unsettled.pop(0))

    def _left(self) -> float:
        return self._began + self.settings.seconds - time.monotonic()

    def _share(self) -> float:
        """Give the seconds that the next target is searched, so that each has its turn.

        A child takes time to start; what that took on average is not there for searching.
        """
        targets = len(self._waiting) + len(self._hunts())
        turn = self._left() * min(self.settings.workers, targets) / targets
        startup = sum(self._startups) / max(len(self._startups), 1)
        return max(turn - startup, turn * LEAST_OF_TURN)

    def _start(self, request: HuntRequest | SettleRequest) -> None:
        self._children.append(Child.start(request, self.folder))

    def _listen(self) -> None:
        by_connection = {child.connection: child for child in self._children}
        for ready in wait(list(by_connection), timeout=TICK):
            child = next(c for connection, c in by_connection.items() if connection is ready)
            message = child.receive()
            if message is None:
                self._end(child)
            else:
                self._take(child, message)

    def _take(self, child: Child, message: Message) -> None:
        request = child.request
        if isinstance(message, Told):
            self._tell(child, message.event)
        elif isinstance(message, Unsettled) and isinstance(request, HuntRequest):
            again = not self._interrupted
            self._unsettled.append(
                SettleRequest(request.job, request.settings, message.findings, message.cases, judge=again)
            )
        elif isinstance(message, Settled):
            child.answered = True
            case = pickle.loads(message.case) if self.with_cases else None
            self._shrunk(replace(message.finding, case=case))
        elif isinstance(message, Failed):
            child.answered = True
            self._tallies[request.name] = replace(self._tallies[request.name], error=message.message)
            if isinstance(request, SettleRequest):
                self._shrunk(request.findings[-1])

    def _tell(self, child: Child, event: Event) -> None:
        if isinstance(event, TargetStarted):
            child.since = time.monotonic()
            self._startups.append(child.since - child.forked)
            self.emit(event)
        elif isinstance(event, FindingNew):
            self._record(event.finding)
            self.emit(event)
        elif isinstance(event, Progress):
            self._merge(event.tally)
            self.emit(Progress(self._tallies[event.tally.target]))
        elif isinstance(event, TargetFinished):
            child.answered = True
            self._merge(event.tally)

    def _merge(self, tally: Tally) -> None:
        self._tallies[tally.target] = replace(tally, findings=self._tallies[tally.target].findings)

    def _shrunk(self, finding: Finding) -> None:
        self._record(finding)
        self.emit(FindingShrunk(finding))

    def _record(self, finding: Finding) -> None:
        self._tallies[finding.target] = self._tallies[finding.target].with_finding(finding)
        most = self.settings.max_failures
        if most is not None and sum(len(tally.findings) for tally in self._tallies.values()) >= most:
            self._stop()

    def _end(self, child: Child) -> None:
        """Take leave of a child that has ended, and say so where it did not end by itself."""
        self._children.remove(child)
        case = child.tower.case()
        ending = child.end()
        request = child.request
        if isinstance(request, HuntRequest):
            self._ended.add(request.name)
        if not child.answered and child.killed != _STOPPED:
            self._lost(child, case, ending)
        pending = [c.request for c in self._children] + list(self._unsettled)
        if request.name in self._ended and all(other.name != request.name for other in pending):
            self.emit(TargetFinished(self._tallies[request.name]))

    def _lost(self, child: Child, case: bytes | None, ending: str) -> None:
        """Account for a child that died or was killed while it searched or settled."""
        request = child.request
        tally = self._tallies[request.name]
        if isinstance(request, SettleRequest):
            self._shrunk(replace(request.findings[-1], reliability="0/1"))
        elif isinstance(request, HuntRequest) and case is not None:
            if child.killed == _HANGS:
                seen = Seen(Symptom.HANG, "", f"no return in {HANG_SECONDS:g} s", "a return")
            else:
                seen = Seen(Symptom.CRASH, "", ending, "a return")
            seconds = time.monotonic() - child.since
            finding = Finding(request.name, seen, None, 0, seconds, tally.cases + 1)
            if finding.signature in self.settings.baseline:
                self._tallies[request.name] = replace(tally, known=(*tally.known, finding.signature))
                return
            self._record(finding)
            self.emit(FindingNew(finding))
            self._unsettled.append(SettleRequest(request.job, request.settings, (finding,), (case,), judge=False))
        else:
            error = f"its process was killed: {child.killed}" if child.killed else f"its process died: {ending}"
            self._tallies[request.name] = replace(tally, error=error)

    def _watch(self) -> None:
        """Kill what hangs, and what does not end when it was asked to."""
        now = time.monotonic()
        for child in self._children:
            share = child.request.seconds if isinstance(child.request, HuntRequest) else 0.0
            if child.tower.seconds() > HANG_SECONDS:
                child.kill(_HANGS)
            elif now > child.since + share + GRACE_SECONDS:
                child.kill(_STUCK)
            elif self._interrupted and now > max(self._stopped_at, child.forked) + STOP_SECONDS:
                child.kill(_STOPPED)

    def _stop(self) -> None:
        """Ask every search to end before its next case; settling goes on."""
        if not self._stopping:
            self._stopping, self._stopped_at = True, time.monotonic()
            for child in self._hunts():
                child.ask_to_stop()

    def _interrupt(self) -> None:
        """End soon, with what was found saved but not judged again; a second time, end now."""
        if self._interrupted:
            for child in self._children:
                child.kill(_STOPPED)
        self._interrupted = True
        self._unsettled = [replace(request, judge=False) for request in self._unsettled]
        self._stop()


@contextmanager
def _interrupts_told(tell: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C call a function rather than raise, which could tear a message of a child in two."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals reach the main thread alone
        return
    before = signal.signal(signal.SIGINT, lambda number, frame: tell())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
