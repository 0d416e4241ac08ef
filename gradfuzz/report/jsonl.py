"""The JSONL report: one event a line, as it happens."""

from __future__ import annotations

import json
from pathlib import Path

from gradfuzz import __version__
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
from gradfuzz.report.json_report import DIGITS, finding_to_json, result_to_json, tally_to_json
from gradfuzz.report.version import torch_version


def event_to_json(event: Event) -> dict[str, object]:
    """Give an event as an object whose key ``event`` names its kind."""
    match event:
        case CampaignStarted():
            versions = {"torch": torch_version(), "gradfuzz": __version__}
            about = {"seed": event.seed, "seconds": event.seconds, "targets": list(event.targets)}
            return {"event": "campaign-started", **about, **versions}
        case TargetStarted():
            return {"event": "target-started", "target": event.target}
        case Progress():
            return {"event": "progress", **_counts(tally_to_json(event.tally))}
        case FindingNew():
            return {"event": "finding-new", "target": event.finding.target, **finding_to_json(event.finding)}
        case FindingShrunk():
            return {"event": "finding-shrunk", "target": event.finding.target, **finding_to_json(event.finding)}
        case TargetFinished():
            return {"event": "target-finished", **tally_to_json(event.tally), "error": event.tally.error}
        case CampaignFinished():
            seconds = round(event.result.seconds, DIGITS)
            ending = {"seconds": seconds, "interrupted": event.result.interrupted}
            return {"event": "campaign-finished", **ending, "result": result_to_json(event.result)}


def _counts(tally: dict[str, object]) -> dict[str, object]:
    return {key: value for key, value in tally.items() if key != "findings"}


class JsonlReport:
    """Writes each event at once, so that what a killed process saw can be read."""

    def __init__(self, path: Path) -> None:
        """Open the file anew."""
        self._file = path.open("w", encoding="utf-8")

    def handle(self, event: Event) -> None:
        """Write the event as a line."""
        self._file.write(json.dumps(event_to_json(event)) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
