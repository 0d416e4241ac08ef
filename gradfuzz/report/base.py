"""What every report is: a listener to the events of a campaign."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from gradfuzz.campaign.event import Event
from gradfuzz.errors import CampaignError


class Report(Protocol):
    """Listens to the events of one campaign."""

    def handle(self, event: Event) -> None:
        """Take the next event."""

    def close(self) -> None:
        """Leave terminal and files in order, also after an error."""


def write_whole(path: Path, text: str) -> None:
    """Write a file so that at any moment it is absent, old or new."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        temporary.chmod(0o644)  # mkstemp's 0600 would keep a report from colleagues
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def open_report(spec: str) -> Report:
    """Open the report that ``FORMAT:PATH`` names; a CampaignError says what is wrong with it."""
    name, colon, place = spec.partition(":")
    formats = _formats()
    if name not in formats:
        raise CampaignError(f"report {spec!r}: format {name!r} is unknown; known are {', '.join(formats)}")
    if not colon or not place:
        raise CampaignError(f"report {spec!r} names no file; write {name}:PATH")
    path = Path(place)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            raise IsADirectoryError(21, "is a folder")
        return formats[name](path)
    except OSError as error:
        raise CampaignError(f"report {spec!r} cannot be written: {error.strerror or error}") from None


def _formats() -> dict[str, Callable[[Path], Report]]:
    from gradfuzz.report.json_report import JsonReport
    from gradfuzz.report.jsonl import JsonlReport
    from gradfuzz.report.junit import JunitReport

    return {"json": JsonReport, "jsonl": JsonlReport, "junit": JunitReport}
