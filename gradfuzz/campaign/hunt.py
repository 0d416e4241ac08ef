"""Hunts: one target searched round by round until its share of the budget is used up."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gradfuzz.campaign.event import Event, FindingNew, FindingShrunk, Progress, TargetFinished, TargetStarted
from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.result import Tally
from gradfuzz.campaign.round import CASES, DrawError, JudgeError, Round, Sighting, round_seed
from gradfuzz.campaign.settings import Settings
from gradfuzz.campaign.store import accepted, keep, settle

if TYPE_CHECKING:
    from gradfuzz.case import Case
    from gradfuzz.targets import Target

# Of a target's share, what is kept for shrinking what is found at its very end: a quarter, but no more than this.
RESERVE_SECONDS = 2.0
RESERVE = 0.25

# Often enough to look alive, seldom enough to cost nothing.
PROGRESS_SECONDS = 0.25

# A function that refuses this many cases and accepts none will not be tested by more of the same.
FUTILE = 400

# Rounds in a row that end before their number of cases is drawn: the target has no other cases.
EXHAUSTED = 3


@dataclass
class Hunt:
    """The search of one target.

    Attributes:
        target: What is searched.
        settings: What the campaign was asked for.
        seconds: The target's share of the budget.
        emit: Told each event.
        settler: Told, smallest first, the cases known for a signature when it is as small as it gets;
            None judges them again here.
        stopped: Asked before each case whether to end at once.
        flight: Told each case before it is judged, and None after.
    """

    target: Target
    settings: Settings
    seconds: float
    emit: Callable[[Event], None]
    settler: Callable[[Sequence[Finding]], None] | None = None
    stopped: Callable[[], bool] = lambda: False
    flight: Callable[[Case | None], None] = lambda case: None

    tally: Tally = field(init=False)
    _began: float = field(init=False)
    _told: float = field(init=False)
    # Signatures that are not looked for any more, and the findings that wait to be shrunk.
    _known: set[str] = field(init=False)
    _waiting: dict[str, Finding] = field(init=False, default_factory=dict)
    _reasons: Counter[str] = field(init=False, default_factory=Counter)
    _doubts: Counter[str] = field(init=False, default_factory=Counter)

    def __post_init__(self) -> None:
        """Begin with nothing done."""
        self.tally = Tally(self.target.name)

    def run(self) -> Tally:
        """Search until the share of the budget is used up, then give what was done."""
        self._began = self._told = time.monotonic()
        self._known = set(self.settings.baseline | accepted(self.target.name, self.settings))
        self.emit(TargetStarted(self.target.name))
        try:
            self._search()
        except DrawError as error:
            self.tally = replace(self.tally, error=str(error))
        except JudgeError as error:
            self.tally = replace(self.tally, error=f"the judge failed, which is an error of gradfuzz: {error}")
        finally:
            for finding in list(self._waiting.values()):
                self._settle([finding])
            self.tally = replace(
                self.tally,
                seconds=time.monotonic() - self._began,
                reason=_commonest(self._reasons),
                doubt=_commonest(self._doubts),
            )
            self.emit(TargetFinished(self.tally))
        return self.tally

    def _search(self) -> None:
        number = short = 0
        while short < EXHAUSTED and not self._over() and not self._drawn_enough():
            limit = self.settings.max_examples
            cases = CASES if limit is None else min(CASES, limit - self.tally.cases)
            done = self._round(number, cases)
            for signature in [name for name in done.first if name in self._waiting]:
                if not self._over():
                    self._round(number, cases, focus=signature)
            short = short + 1 if done.focus is None and done.drawn < cases else 0
            number += 1

    def _over(self) -> bool:
        late = time.monotonic() >= self._began + self.seconds - self._reserve
        most = self.settings.max_failures
        return late or self.stopped() or (most is not None and len(self.tally.findings) >= most)

    @property
    def _reserve(self) -> float:
        return min(RESERVE_SECONDS, self.seconds * RESERVE)

    def _drawn_enough(self) -> bool:
        limit = self.settings.max_examples
        futile = self.tally.accepted == 0 and self.tally.rejected >= FUTILE
        return futile or (limit is not None and self.tally.cases >= limit)

    def _round(self, number: int, cases: int, *, focus: str | None = None) -> Round:
        """Run a round; a focus runs it a second time, for a signature that it saw beside its own."""
        before = self.tally
        search = Round(
            target=self.target,
            settings=self.settings,
            seed=round_seed(self.settings.seed, self.target.name, number),
            known=frozenset(self._known),
            deadline=self._began + self.seconds - self._reserve,
            reserve=self._reserve,
            focus=focus,
            cases=cases,
            stopped=self.stopped,
            flight=self.flight,
            on_case=(lambda: self._count(before, search)) if focus is None else (lambda: None),
            on_sight=lambda sighting: self._sight(self._finding(sighting, number, before.cases)),
        )
        try:
            search.run()
        finally:
            if focus is None:
                self._reasons.update(search.reasons)
                self._doubts.update(search.doubts)
            if search.focus in self._waiting and search.focus in search.smallest:
                first = self._waiting[search.focus]
                small = search.smallest[search.focus]
                self._settle([replace(first, seen=small.seen, case=small.case, path=None), first])
        return search

    def _count(self, before: Tally, search: Round) -> None:
        self.tally = replace(
            self.tally,
            cases=before.cases + search.drawn,
            rejected=before.rejected + search.rejected,
            inconclusive=before.inconclusive + search.inconclusive,
            known=tuple(sorted({*self.tally.known, *search.swallowed.difference(self._found())})),
        )
        now = time.monotonic()
        if now >= self._told + PROGRESS_SECONDS:
            self._told = now
            self.emit(Progress(replace(self.tally, seconds=now - self._began)))

    def _found(self) -> set[str]:
        return {finding.signature for finding in self.tally.findings}

    def _finding(self, sighting: Sighting, number: int, cases: int) -> Finding:
        return Finding(
            target=self.target.name,
            seen=sighting.seen,
            case=sighting.case,
            round=number,
            seconds_to_find=sighting.at - self._began,
            cases_to_find=cases + sighting.cases,
        )

    def _sight(self, finding: Finding) -> None:
        if finding.signature in self._waiting:
            return
        finding = keep(finding, self.settings, self.target)
        self._waiting[finding.signature] = finding
        self.tally = self.tally.with_finding(finding)
        self.emit(FindingNew(finding))

    def _settle(self, candidates: Sequence[Finding]) -> None:
        signature = candidates[0].signature
        self._known.add(signature)
        del self._waiting[signature]
        if candidates[0].case == candidates[-1].case:
            candidates = candidates[-1:]
        if self.settler is not None:
            self.settler(candidates)
            return
        finding = settle(self.target, candidates, self.settings)
        self.tally = self.tally.with_finding(finding)
        self.emit(FindingShrunk(finding))


def _commonest(reasons: Counter[str]) -> str:
    return reasons.most_common(1)[0][0] if reasons else ""
