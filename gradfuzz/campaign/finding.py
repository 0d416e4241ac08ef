"""A finding of a campaign: what the checker saw, with its case, its file and how it was found."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gradfuzz.checker.verdict import Finding as Seen
from gradfuzz.checker.verdict import Symptom

if TYPE_CHECKING:
    from pathlib import Path

    from gradfuzz.case import Case


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect of one target, in the smallest case known.

    Attributes:
        target: The canonical address of the target.
        seen: What the checker says of the case.
        case: The case; None where a finding came from a process that died and left none.
        path: The reproducer's file, or None when it was not saved.
        unsaved: Why it was not saved, or empty.
        round: The round that found it; with the campaign's seed it finds it again.
        reliability: How often judging the case again gave the same signature, such as ``"3/3"``; empty
            when it was not judged again.
        seconds_to_find: Seconds from the target's start to the first case that showed it.
        cases_to_find: Cases of the target up to and including that one.
    """

    target: str
    seen: Seen
    case: Case | None
    round: int
    seconds_to_find: float
    cases_to_find: int
    path: Path | None = None
    unsaved: str = ""
    reliability: str = ""

    @property
    def signature(self) -> str:
        """The identity of the defect: ``target|symptom|order|mode|where|exception``."""
        return self.seen.signature(self.target)

    @property
    def symptom(self) -> Symptom:
        """The class of the defect."""
        return self.seen.symptom

    @property
    def order(self) -> int | None:
        """Of which derivative: 0 the value, 1 the gradient, 2 the second derivative."""
        return self.seen.order

    @property
    def mode(self) -> str:
        """The mode of differentiation, such as ``"rev-rev"``; empty where it has none."""
        return self.seen.mode

    @property
    def where(self) -> str:
        """The place, such as ``"input 0"``."""
        return self.seen.where

    @property
    def element(self) -> str:
        """The index of the element that got and want are about."""
        return self.seen.element

    @property
    def place(self) -> str:
        """Where, with the element: ``input 0, element (1, 2)``."""
        return self.seen.place

    @property
    def got(self) -> str:
        """The analytic value, or what was raised."""
        return self.seen.got

    @property
    def want(self) -> str:
        """What it should have been."""
        return self.seen.want

    @property
    def explanation(self) -> str:
        """What kind of mistake this looks like; empty when ambiguous."""
        return self.seen.explanation

    @property
    def exception(self) -> str:
        """The type name of what was raised."""
        return self.seen.exception

    @property
    def flaky(self) -> bool:
        """Whether judging the case again did not always give the same signature."""
        again, _, times = self.reliability.partition("/")
        return again != times

    def __str__(self) -> str:
        """Say target, which derivative, where, got and want on one line."""
        return f"{self.target}: {self.seen}"
