"""Results: what a campaign found, a target and altogether."""

from __future__ import annotations

from dataclasses import dataclass, replace

from gradfuzz.campaign.finding import Finding

# Above this part of refused cases a search is of little use, and its user is told what to declare.
MOSTLY = 0.5


@dataclass(frozen=True, slots=True)
class Tally:
    """What was done of one target.

    Attributes:
        target: The canonical address of the target.
        cases: Cases drawn and judged; attempts to shrink a case are not counted.
        rejected: How many of them the function refused.
        inconclusive: How many of them gave no answer either way.
        seconds: How long the target was searched.
        findings: The defects, one a signature.
        known: Signatures seen that a baseline or an accepted reproducer names.
        reason: Why most of the rejected cases were refused.
        doubt: Why most of the inconclusive cases were so.
        error: Why the search broke off, or empty.
    """

    target: str
    cases: int = 0
    rejected: int = 0
    inconclusive: int = 0
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    known: tuple[str, ...] = ()
    reason: str = ""
    doubt: str = ""
    error: str = ""

    @property
    def accepted(self) -> int:
        """Cases that the function did not refuse."""
        return self.cases - self.rejected

    @property
    def mostly_rejected(self) -> bool:
        """Whether most cases were refused, so that little was tested."""
        return self.rejected > MOSTLY * self.cases

    def with_finding(self, finding: Finding) -> Tally:
        """Give the tally with a finding added, or put in the place of one of the same signature."""
        signatures = [f.signature for f in self.findings]
        if finding.signature not in signatures:
            return replace(self, findings=(*self.findings, finding))
        i = signatures.index(finding.signature)
        return replace(self, findings=(*self.findings[:i], finding, *self.findings[i + 1 :]))


@dataclass(frozen=True, slots=True)
class Result:
    """What a campaign did and found.

    Attributes:
        seed: The seed it ran with; the same seed and number of cases find the same.
        seconds: How long it took.
        tallies: One a target, in the order they were given.
        interrupted: Whether a person stopped it before its end.
    """

    seed: int
    seconds: float
    tallies: tuple[Tally, ...]
    interrupted: bool = False

    @property
    def findings(self) -> list[Finding]:
        """All defects, a target after the other."""
        return [finding for tally in self.tallies for finding in tally.findings]

    @property
    def cases(self) -> int:
        """Cases drawn and judged."""
        return sum(tally.cases for tally in self.tallies)

    @property
    def rejected(self) -> int:
        """Cases that the functions refused."""
        return sum(tally.rejected for tally in self.tallies)

    @property
    def inconclusive(self) -> int:
        """Cases that gave no answer either way."""
        return sum(tally.inconclusive for tally in self.tallies)

    @property
    def errors(self) -> list[str]:
        """Why searches broke off, one line a target."""
        return [f"{tally.target}: {tally.error}" for tally in self.tallies if tally.error]
