"""Workers: child processes that list, search and settle targets, one request a process."""

from __future__ import annotations

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from gradfuzz.campaign.event import Event, FindingNew, FindingShrunk, Progress, TargetFinished
from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.settings import Settings
from gradfuzz.errors import GradfuzzError, TargetError

if TYPE_CHECKING:
    from gradfuzz.targets import Target


@dataclass(frozen=True, slots=True)
class Job:
    """One target as a process can find it: the address a person typed, and the name of one target of it."""

    address: str
    name: str


@dataclass(frozen=True, slots=True)
class ListRequest:
    """Asks for the targets of some addresses."""

    addresses: tuple[str, ...]

    @property
    def name(self) -> str:
        """The target it is about: none in particular."""
        return ""


@dataclass(frozen=True, slots=True)
class HuntRequest:
    """Asks for a target to be searched."""

    job: Job
    settings: Settings
    seconds: float

    @property
    def name(self) -> str:
        """The target it is about."""
        return self.job.name


@dataclass(frozen=True, slots=True)
class SettleRequest:
    """Asks for the cases of one signature to be judged again and the best to be saved; or just to be saved.

    Attributes:
        job: The target.
        settings: What the campaign was asked for.
        findings: Without their cases, so that a process which knows no user's code can hold them.
        cases: The pickled cases.
        judge: Whether to judge them; a case that killed its process is only saved.
    """

    job: Job
    settings: Settings
    findings: tuple[Finding, ...]
    cases: tuple[bytes, ...]
    judge: bool = True

    @property
    def name(self) -> str:
        """The target it is about."""
        return self.job.name


Request = ListRequest | HuntRequest | SettleRequest


@dataclass(frozen=True, slots=True)
class Listed:
    """Answers a ListRequest."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Carries an event of a hunt, its findings without their cases."""

    event: Event


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Carries the candidates of one signature that a fresh process shall settle."""

    findings: tuple[Finding, ...]
    cases: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Settled:
    """Answers a SettleRequest."""

    finding: Finding
    case: bytes


@dataclass(frozen=True, slots=True)
class Failed:
    """Says that a request could not be met: one line, and where it happened when that is an error of ours."""

    message: str
    trace: str = ""


Message = Listed | Told | Unsettled | Settled | Failed


def work(connection: Connection, request: Request, flight: Path, log: Path, folder: Path) -> None:
    """Meet one request and send what comes of it; the process ends with this function."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says when to end
    _silence(log)
    os.chdir(folder)  # where the parent is, and not where it was when it began
    try:
        if isinstance(request, ListRequest):
            connection.send(Listed(_list(request.addresses)))
        elif isinstance(request, HuntRequest):
            _hunt(connection, request, flight)
        else:
            connection.send(_settle(request))
    except GradfuzzError as error:
        connection.send(Failed(str(error)))
    except BrokenPipeError:
        pass  # the parent is gone, and whatever was found is on disk
    except Exception as error:
        connection.send(Failed(f"{type(error).__name__}: {error}", traceback.format_exc()))
    finally:
        connection.close()


def _silence(log: Path) -> None:
    """Keep what the targets print off the terminal; the last words of a dying process stay in the log."""
    sys.stdout.flush()
    sys.stderr.flush()
    with log.open("wb") as errors, Path(os.devnull).open("wb") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(errors.fileno(), 2)


def _list(addresses: Sequence[str]) -> tuple[Job, ...]:
    from gradfuzz.targets import resolve

    jobs: dict[str, Job] = {}
    for address in addresses:
        for target in resolve(address):
            if target.name not in jobs:
                jobs[target.name] = Job(target.name if _is_resolved(target.name) else address, target.name)
    return tuple(jobs.values())


def _is_resolved(name: str) -> bool:
    """Whether a target is found by its own name, for which less is imported than for a folder."""
    from gradfuzz.targets import resolve

    try:
        return any(target.name == name for target in resolve(name))
    except GradfuzzError:  # below the project's root, a name that is relative to that leads nowhere
        return False


def _target(job: Job) -> Target:
    from gradfuzz.targets import resolve

    for target in resolve(job.address):
        if target.name == job.name:
            return target
    raise TargetError(f"{job.address}: {job.name} is gone; it was there when the campaign began")


def _hunt(connection: Connection, request: HuntRequest, flight: Path) -> None:
    from gradfuzz.campaign.flight import Recorder
    from gradfuzz.campaign.hunt import Hunt

    def send_candidates(findings: Sequence[Finding]) -> None:
        cases = tuple(pickle.dumps(finding.case) for finding in findings)
        connection.send(Unsettled(tuple(replace(finding, case=None) for finding in findings), cases))

    hunt = Hunt(
        _target(request.job),
        request.settings,
        request.seconds,
        emit=lambda event: connection.send(Told(_without_cases(event))),
        settler=send_candidates,
        stopped=lambda: connection.poll(0),
        flight=Recorder(flight),
    )
    hunt.run()


def _without_cases(event: Event) -> Event:
    if isinstance(event, FindingNew | FindingShrunk):
        return replace(event, finding=replace(event.finding, case=None))
    if isinstance(event, Progress | TargetFinished):
        return replace(event, tally=replace(event.tally, findings=()))
    return event


def _settle(request: SettleRequest) -> Settled:
    from gradfuzz.campaign.store import keep, settle

    cases = [pickle.loads(case) for case in request.cases]
    findings = [replace(finding, case=case) for finding, case in zip(request.findings, cases, strict=True)]
    if request.judge:
        finding = settle(_target(request.job), findings, request.settings)
    else:
        _target(request.job)  # so that the case's own classes can be read
        finding = keep(findings[0], request.settings, None)
    return Settled(replace(finding, case=None), pickle.dumps(finding.case))
