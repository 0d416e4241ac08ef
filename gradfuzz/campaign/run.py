"""Campaigns: a budgeted search over targets."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gradfuzz.campaign.event import CampaignFinished, CampaignStarted, Event
from gradfuzz.campaign.hunt import Hunt
from gradfuzz.campaign.result import Result, Tally
from gradfuzz.campaign.settings import CORPUS, SECONDS, Settings, make_settings
from gradfuzz.campaign.supervisor import supervise
from gradfuzz.campaign.worker import Job
from gradfuzz.errors import CampaignError, GradfuzzError, TargetError
from gradfuzz.targets import Target, resolve

if TYPE_CHECKING:
    import torch


def fuzz(
    targets: Target | str | Sequence[Target | str],
    *,
    seconds: float = SECONDS,
    seed: int | None = None,
    max_examples: int | None = None,
    corpus: str | Path | None = CORPUS,
    order: int | None = None,
    checks: Iterable[str] | None = None,
    exclude_checks: Iterable[str] = (),
    dtypes: Iterable[str | torch.dtype] | None = None,
    devices: Iterable[str | torch.device] | None = None,
    max_failures: int | None = None,
    baseline: str | Path | Iterable[str] | None = None,
    workers: int = 1,
    on_event: Callable[[Event], None] | None = None,
) -> Result:
    """Search targets for wrong derivatives, shrink what is found, and save it.

    One worker searches in this process, a target after the other; several search in processes of their own,
    which need targets that can be resolved by their address.

    Args:
        targets: Targets, or addresses of targets, one or several.
        seconds: Budget of the whole campaign.
        seed: Decides every case; drawn, and told in the result, when it is None.
        max_examples: Cases a target; None draws for as long as the time allows.
        corpus: The folder that reproducers are saved in; None saves none.
        order: The highest derivative looked at; None is what each target declares.
        checks: Names of the symptoms to look for; None is all.
        exclude_checks: Names of symptoms not to look for.
        dtypes: Dtypes to draw, among those a target takes; None is all of them.
        devices: Devices to draw; None is what each target declares.
        max_failures: Findings after which to end.
        baseline: Signatures not to report, or the file that lists them.
        workers: Targets searched at the same time.
        on_event: Told each event as it happens, in this thread.

    Raises:
        CampaignError: The settings contradict each other or cannot be met.
        TargetError: An address names no target.
        KeyboardInterrupt: A person ended the campaign; what was found is on disk.
    """
    settings = make_settings(
        seconds=seconds,
        seed=seed,
        max_examples=max_examples,
        corpus=corpus,
        order=order,
        checks=checks,
        exclude_checks=exclude_checks,
        dtypes=dtypes,
        devices=devices,
        max_failures=max_failures,
        baseline=baseline,
        workers=workers,
    )
    found = resolve_all(targets)
    emit = on_event or (lambda event: None)
    if workers > 1:
        result = supervise([_job(target) for target in found], settings, emit, with_cases=True)
    else:
        result = _in_turn(found, settings, emit)
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def resolve_all(targets: Target | str | Sequence[Target | str]) -> list[Target]:
    """Give the targets of targets and addresses, each once; a TargetError names what is none."""
    wanted = [targets] if isinstance(targets, Target | str) else targets
    if not isinstance(wanted, Sequence):
        raise TargetError(f"{wanted!r} is no target; decorate it with gradfuzz.target, or give its address")
    found: dict[str, Target] = {}
    for item in wanted:
        if not isinstance(item, Target | str):
            raise TargetError(f"{item!r} is no target; decorate it with gradfuzz.target, or give its address")
        for target in resolve(item) if isinstance(item, str) else [item]:
            found.setdefault(target.name, target)
    if not found:
        raise TargetError(f"{targets!r} holds no target; decorate a function with gradfuzz.target")
    return list(found.values())


def _in_turn(targets: Sequence[Target], settings: Settings, emit: Callable[[Event], None]) -> Result:
    began = time.monotonic()
    emit(CampaignStarted(tuple(target.name for target in targets), settings.seconds, settings.seed))
    tallies: list[Tally] = []
    interrupted = False
    for i, target in enumerate(targets):
        found = sum(len(tally.findings) for tally in tallies)
        most = None if settings.max_failures is None else settings.max_failures - found
        left = began + settings.seconds - time.monotonic()
        if interrupted or left <= 0 or most == 0:
            tallies.append(Tally(target.name))
            continue
        hunt = Hunt(target, replace(settings, max_failures=most), left / (len(targets) - i), emit)
        try:
            tallies.append(hunt.run())
        except KeyboardInterrupt:
            interrupted = True
            tallies.append(hunt.tally)
    result = Result(settings.seed, time.monotonic() - began, tuple(tallies), interrupted=interrupted)
    emit(CampaignFinished(result))
    return result


def _job(target: Target) -> Job:
    try:
        names = [found.name for found in resolve(target.name)]
    except GradfuzzError:
        names = []
    if target.name not in names:
        raise CampaignError(
            f"{target.name} cannot be resolved by its address, which several workers need; use workers=1"
        )
    return Job(address=target.name, name=target.name)
