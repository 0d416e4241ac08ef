"""How many known faults are found, and how many false alarms are raised: ``python -m benchmarks.zoo [FOLDER]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import click

from benchmarks.bridge import OWN_ZOO, Entry, ZooError, load
from benchmarks.trial import Sighting, Trial, run

# Each function's campaign; long enough for a thousand cases or so.
SECONDS = 5.0

# Columns: name, kind, found, symptom, seconds, cases, cases of the twin.
_ROW = "{:<36} {:<25} {:<5} {:<24} {:>7} {:>6} {:>6}  {}"


@dataclass(frozen=True, slots=True)
class Row:
    """What came of one entry."""

    name: str
    kind: str
    faulty: Trial
    fixed: Trial

    @property
    def alarms(self) -> tuple[Sighting, ...]:
        """The findings on the twin, but for those that are known to be torch's own."""
        return self.fixed.alarms

    def __str__(self) -> str:
        """Show the row on one line."""
        found = self.faulty.found
        first = found or next(iter(self.faulty.sightings), None)
        remarks = [f"ALARM {sighting.text}" for sighting in self.alarms]
        if first is not None and found is None:
            remarks.append("its reproducer does not replay")
        remarks += [
            f"{which} {trial.ending}"
            for which, trial in (("faulty", self.faulty), ("twin", self.fixed))
            if trial.ending
        ]
        return _ROW.format(
            self.name,
            self.kind,
            "found" if found else "-",
            first.symptom if first else "",
            f"{first.seconds:.2f}" if first else "",
            first.cases if first else self.faulty.cases,
            self.fixed.cases,
            "; ".join(remarks),
        ).rstrip()


def run_entry(folder: Path, entry: Entry, *, seconds: float, seed: int) -> Row:
    """Search both functions of an entry, one after the other."""
    faulty = run(folder, entry.name, "faulty", seconds=seconds, seed=seed)
    fixed = run(folder, entry.name, "fixed", seconds=seconds, seed=seed)
    return Row(entry.name, entry.kind, faulty, fixed)


def run_zoo(
    folder: Path, entries: Sequence[Entry], *, seconds: float, seed: int, jobs: int, show: Callable[[Row], None]
) -> list[Row]:
    """Search all entries, some at a time, and show each row as it comes in the order of the entries."""
    rows: list[Row] = []
    with ThreadPoolExecutor(jobs) as pool:
        for row in pool.map(lambda entry: run_entry(folder, entry, seconds=seconds, seed=seed), entries):
            show(row)
            rows.append(row)
    return rows


def total(rows: Sequence[Row]) -> str:
    """Say on one line what was found and what was not."""
    found = sum(row.faulty.found is not None for row in rows)
    alarmed = sum(bool(row.alarms) for row in rows)
    broken = sum(bool(row.fixed.ending) for row in rows)
    text = f"found {found} of {len(rows)}, alarms on {alarmed} of {len(rows)} twins"
    return f"{text}, {broken} of which did not end well" if broken else text


@click.command(context_settings={"max_content_width": 110})
@click.argument("folder", type=click.Path(path_type=Path), default=OWN_ZOO)
@click.option("--seconds", default=SECONDS, show_default=True, help="For each function.")
@click.option("--seed", default=0, show_default=True)
@click.option("--jobs", default=2, show_default=True, help="Functions searched at the same time.")
@click.option("--only", multiple=True, help="Name of an entry; repeatable.")
@click.option("--json", "path", type=click.Path(path_type=Path), help="Also write the rows to this file.")
def main(folder: Path, *, seconds: float, seed: int, jobs: int, only: tuple[str, ...], path: Path | None) -> None:
    """Search each faulty function of the zoo in FOLDER and its correct twin; by default the project's own zoo."""
    folder = folder.resolve()
    try:
        entries = [entry for entry in load(folder) if not only or entry.name in only]
    except ZooError as error:
        raise click.ClickException(str(error)) from None
    click.echo(_ROW.format("entry", "kind", "", "symptom", "seconds", "cases", "twin's", ""))
    rows = run_zoo(folder, entries, seconds=seconds, seed=seed, jobs=jobs, show=lambda row: click.echo(str(row)))
    click.echo(total(rows))
    if path is not None:
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
