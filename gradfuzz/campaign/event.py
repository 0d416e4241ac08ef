"""Events: what a campaign tells while it runs, for reports to show."""

from __future__ import annotations

from dataclasses import dataclass

from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.result import Result, Tally


@dataclass(frozen=True, slots=True)
class CampaignStarted:
    """The campaign knows its targets and begins."""

    targets: tuple[str, ...]
    seconds: float
    seed: int


@dataclass(frozen=True, slots=True)
class TargetStarted:
    """The first case of a target is about to be drawn."""

    target: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the search of a target is."""

    tally: Tally


@dataclass(frozen=True, slots=True)
class FindingNew:
    """A signature was seen for the first time; its case is not yet shrunk."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class FindingShrunk:
    """A finding is as small as it gets, was judged again, and is saved."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class TargetFinished:
    """A target's share of the budget is used up."""

    tally: Tally


@dataclass(frozen=True, slots=True)
class CampaignFinished:
    """The campaign is over; everything found is on disk."""

    result: Result


Event = CampaignStarted | TargetStarted | Progress | FindingNew | FindingShrunk | TargetFinished | CampaignFinished
