"""The terminal report: progress on standard error while it runs, results on standard output at the end."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

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
from gradfuzz.report.summary import closing, counted, details, heading, warnings

# Without a terminal, a line as often as a person looks at a log that runs.
LINE_SECONDS = 5.0
FRAMES_A_SECOND = 8
# Rows of the live table: a screen has some twenty lines, and others write there too.
MOST_ROWS = 12
# Columns that the counts of the live table take beside the name of a target.
COUNTS_WIDTH = 58


class TerminalReport:
    """Shows a campaign to the person who started it."""

    def __init__(self, *, again: str, quiet: bool = False, verbose: bool = False, color: bool | None = None) -> None:
        """Take what is shown and how.

        Args:
            again: The command that runs the campaign again.
            quiet: Whether only findings and the last lines are shown.
            verbose: Whether each finding is shown with its case, and each target with its counts.
            color: False for none; None for what the terminal can.
        """
        plain = color is False
        self._out = Console(no_color=plain or None, highlight=False, markup=False, emoji=False)
        self._err = Console(stderr=True, no_color=plain or None, highlight=False, markup=False, emoji=False)
        self._again, self._quiet, self._verbose = again, quiet, verbose
        self._live: Live | None = None
        self._began = self._told = time.monotonic()
        self._seconds = 0.0
        self._tallies: dict[str, Tally] = {}
        self._running: list[str] = []
        self._done: set[str] = set()
        self._findings: dict[str, Finding] = {}

    def handle(self, event: Event) -> None:
        """Show the event."""
        match event:
            case CampaignStarted():
                self._start(event)
            case TargetStarted():
                self._running.append(event.target)
            case Progress():
                self._tallies[event.tally.target] = event.tally
            case FindingNew():
                self._findings[event.finding.signature] = event.finding
                if self._live is None and not self._quiet:
                    self._say(f"found: {'  '.join(heading(event.finding))}")
            case FindingShrunk():
                self._findings[event.finding.signature] = event.finding
            case TargetFinished():
                self._tallies[event.tally.target] = event.tally
                self._running = [name for name in self._running if name != event.tally.target]
                self._done.add(event.tally.target)
            case CampaignFinished():
                self.close()
                self._show(event.result)
        self._tick()

    def close(self) -> None:
        """Take the live display away."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self, event: CampaignStarted) -> None:
        self._began = self._told = time.monotonic()
        self._seconds = event.seconds
        self._tallies = {target: Tally(target) for target in event.targets}
        if self._quiet:
            return
        self._say(f"{counted(len(event.targets), 'target')}, {event.seconds:g} s, seed {event.seed}")
        if self._err.is_terminal:
            # Standard output is left alone: it may be a file, and nothing is written there before the end.
            self._live = Live(
                get_renderable=self._frame,
                console=self._err,
                refresh_per_second=FRAMES_A_SECOND,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _say(self, text: str) -> None:
        self._err.print(Text(text), soft_wrap=True)

    def _tick(self) -> None:
        now = time.monotonic()
        if self._live is None and not self._quiet and self._running and now >= self._told + LINE_SECONDS:
            self._told = now
            self._say(
                f"{self._status()}; {len(self._done)} of {len(self._tallies)} done, at {', '.join(self._running)}"
            )

    def _status(self) -> str:
        elapsed = time.monotonic() - self._began
        cases = sum(tally.cases for tally in self._tallies.values())
        rate = f"{cases / elapsed:,.0f}/s" if elapsed > 0 else ""
        found = counted(len(self._findings), "finding")
        return f"{min(elapsed, self._seconds):.0f} of {self._seconds:g} s, {counted(cases, 'case')} ({rate}), {found}"

    def _frame(self) -> Table:
        table = Table(box=None, pad_edge=False, show_header=True, header_style="dim")
        width = max(20, shutil.get_terminal_size().columns - COUNTS_WIDTH)
        table.add_column(self._status(), overflow="ellipsis", no_wrap=True, max_width=max(width, len(self._status())))
        for name in ("cases", "rejected", "inconclusive", "findings"):
            table.add_column(name, justify="right", no_wrap=True)
        for name in self._rows():
            tally = self._tallies[name]
            found = sum(finding.target == name for finding in self._findings.values())
            style = "red" if found else ("dim" if name in self._done else "")
            mark = "  " if name not in self._running else "> "
            numbers = [f"{n:,}" for n in (tally.cases, tally.rejected, tally.inconclusive, found)]
            table.add_row(f"{mark}{name}", *numbers, style=style)
        return table

    def _rows(self) -> Sequence[str]:
        """Choose the targets to show: those at work, then those with findings, then the others as they come."""
        faulty = {finding.target for finding in self._findings.values()}
        order = {name: i for i, name in enumerate(self._tallies)}
        ranked = sorted(order, key=lambda name: (name not in self._running, name not in faulty, order[name]))
        return sorted(ranked[:MOST_ROWS], key=order.__getitem__)

    def _show(self, result: Result) -> None:
        for finding in result.findings:
            self._show_finding(finding)
        if self._verbose:
            for tally in result.tallies:
                self._print(
                    f"{tally.target}: {counted(tally.cases, 'case')}, {tally.rejected:,} rejected, "
                    f"{tally.inconclusive:,} inconclusive, {counted(len(tally.findings), 'finding')}"
                )
        for tally in result.tallies:
            for line in warnings(tally):
                self._say(f"{'error' if tally.error else 'warning'}: {line}")
        self._print(closing(result), "bold")
        self._print(f"run again: {self._again}")

    def _show_finding(self, finding: Finding) -> None:
        target, what = heading(finding)
        self._out.print(Text.assemble((target, "bold"), "  ", (what, "bold red")), soft_wrap=True)
        for line in details(finding):
            self._print(f"  {line}")
        if self._verbose and finding.path is not None:
            from gradfuzz.corpus import load
            from gradfuzz.corpus.description import script

            for line in script(load(finding.path)).splitlines():
                self._print(f"    {line}", "dim")

    def _print(self, text: str, style: str = "") -> None:
        self._out.print(Text(text, style), soft_wrap=True)
