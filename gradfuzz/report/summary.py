"""What a campaign found, in lines for a person."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.result import Result, Tally

# A line of an explanation or of a reason; more is in the reproducer.
LONGEST = 300


def one_line(text: str, longest: int = LONGEST) -> str:
    """Give a text without line breaks and control characters, cut where it is long."""
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def counted(number: int, noun: str) -> str:
    """Give a number with its noun: ``1 finding``, ``2 findings``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def heading(finding: Finding) -> tuple[str, str]:
    """Give the two parts of a finding's first line: the target, and what is wrong."""
    place = ", ".join(part for part in (finding.mode, finding.where) if part)
    return finding.target, f"{finding.symptom.value}{f' ({place})' if place else ''}"


def details(finding: Finding) -> Iterator[str]:
    """Give the lines below a finding's first: got and want, and where its reproducer lies."""
    place = f" at {finding.place}" if finding.place else ""
    explanation = f": {finding.explanation}" if finding.explanation else ""
    yield one_line(f"got {finding.got}, want {finding.want}{place}{explanation}")
    if finding.flaky:
        yield f"flaky: judged again, its case shows it {finding.reliability} times"
    if finding.path is not None:
        path = finding.path.as_posix()
        yield f"replay: gradfuzz replay {shlex.quote(path)}"
    elif finding.unsaved:
        yield one_line(f"not saved: {finding.unsaved}")


def warnings(tally: Tally) -> Iterator[str]:
    """Give what a person should know of a target beside its findings."""
    if tally.error:
        yield one_line(f"{tally.target}: {tally.error}")
    elif tally.cases == 0 and not tally.findings:
        yield f"{tally.target}: not tested, the campaign ended before its turn"
    elif tally.mostly_rejected:
        yield one_line(
            f"{tally.target}: {tally.rejected:,} of {counted(tally.cases, 'case')} were rejected, most often by "
            f"{tally.reason or 'an exception'}; declare what its arguments may be (dims, dtype, constraint, bounds)"
        )
    elif tally.inconclusive == tally.cases:
        yield one_line(
            f"{tally.target}: none of {counted(tally.cases, 'case')} was conclusive, most often: {tally.doubt}"
        )
    if tally.known:
        yield f"{tally.target}: {counted(len(tally.known), 'known signature')} seen and not reported"


def closing(result: Result) -> str:
    """Give the last line: how much was found in how much."""
    faulty = sum(bool(tally.findings) for tally in result.tallies)
    found = counted(len(result.findings), "finding") if result.findings else "no findings"
    where = f" in {faulty} of {counted(len(result.tallies), 'target')}" if result.findings else ""
    rest = f"{counted(result.cases, 'case')} in {result.seconds:.1f} s"
    return f"{'interrupted: ' if result.interrupted else ''}{found}{where}; {rest}"
