"""The JSON report: one document, whose keys are a contract."""

from __future__ import annotations

import json
from pathlib import Path

from gradfuzz import __version__
from gradfuzz.campaign.event import CampaignFinished, Event
from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.result import Result, Tally
from gradfuzz.report.base import write_whole
from gradfuzz.report.version import torch_version

FORMAT = "gradfuzz-report"
VERSION = 1

# Seconds are read by people; more digits than the clock is good for are noise.
DIGITS = 3


def finding_to_json(finding: Finding) -> dict[str, object]:
    """Give a finding as the contract has it; a path in POSIX form, null where nothing was saved."""
    return {
        "symptom": finding.symptom.value,
        "signature": finding.signature,
        "order": finding.order,
        "mode": finding.mode,
        "where": finding.where,
        "got": finding.got,
        "want": finding.want,
        "explanation": finding.explanation,
        "path": None if finding.path is None else finding.path.as_posix(),
        "reliability": finding.reliability,
        "seconds_to_find": round(finding.seconds_to_find, DIGITS),
        "cases_to_find": finding.cases_to_find,
    }


def tally_to_json(tally: Tally) -> dict[str, object]:
    """Give what was done of a target as the contract has it."""
    return {
        "name": tally.target,
        "cases": tally.cases,
        "rejected": tally.rejected,
        "inconclusive": tally.inconclusive,
        "seconds": round(tally.seconds, DIGITS),
        "findings": [finding_to_json(finding) for finding in tally.findings],
    }


def result_to_json(result: Result) -> dict[str, object]:
    """Give a result as the contract has it."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "seed": result.seed,
        "torch": torch_version(),
        "gradfuzz": __version__,
        "targets": [tally_to_json(tally) for tally in result.tallies],
    }


class JsonReport:
    """Writes the document when the campaign is over."""

    def __init__(self, path: Path) -> None:
        """Fail now rather than after the campaign where the file cannot be written."""
        self._path = path
        write_whole(path, "{}\n")

    def handle(self, event: Event) -> None:
        """Write the document at the end."""
        if isinstance(event, CampaignFinished):
            write_whole(self._path, json.dumps(result_to_json(event.result), indent=2) + "\n")

    def close(self) -> None:
        """Do nothing: the file is whole at any moment."""
