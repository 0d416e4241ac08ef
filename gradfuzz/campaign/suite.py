"""Targets in a test suite: an assertion of one line, and ordinary Hypothesis tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
from hypothesis import strategies as st

from gradfuzz import strategies as gst
from gradfuzz.campaign.run import fuzz
from gradfuzz.case import Case
from gradfuzz.checker.verdict import Finding as Seen
from gradfuzz.checker.verdict import Status
from gradfuzz.corpus import Reproducer
from gradfuzz.corpus.description import script
from gradfuzz.errors import TargetError
from gradfuzz.targets import Target, judge

# A test of fifty cases has a number for its budget, not a clock: this only ends what would never end.
SUITE_SECONDS = 3600.0

# Hypothesis' own mark of a test that has settings, by which it refuses others; it has no public way to set a default.
_APPLIED = "_hypothesis_internal_settings_applied"


def assert_gradients(target: Target | str, *, max_examples: int = 50, seed: int = 0) -> None:
    """Fail unless the derivatives of a target hold in every case drawn, the same cases on each run.

    Args:
        target: A target, or the address of one or several.
        max_examples: Cases a target.
        seed: Another seed draws other cases.

    Raises:
        AssertionError: A derivative is wrong, or no case was conclusive.
        TargetError: The address names no target.
    """
    __tracebackhide__ = True
    result = fuzz(target, seconds=SUITE_SECONDS, max_examples=max_examples, seed=seed, corpus=None)
    if result.errors:
        raise AssertionError("\n".join(result.errors))
    if result.findings:
        raise AssertionError("\n".join(failure(f.target, f.seen, f.case) for f in result.findings))
    for tally in result.tallies:
        if tally.accepted == tally.inconclusive:
            why = tally.reason if tally.rejected else tally.doubt
            raise AssertionError(
                f"{tally.target}: no case of {tally.cases} was conclusive ({tally.rejected} rejected, "
                f"{tally.inconclusive} inconclusive): {why or 'none could be drawn'}"
            )


@dataclass(frozen=True, slots=True, repr=False)
class DrawnCase:
    """A case with its target, as `given` hands it to a test.

    Attributes:
        target: The target.
        case: The case.
    """

    target: Target
    case: Case

    def check(self) -> None:
        """Judge the case: raise an AssertionError where a derivative is wrong, reject it where the function does."""
        __tracebackhide__ = True
        verdict = judge(self.target, self.case)
        if verdict.status is Status.REJECTED:
            hypothesis.reject()
        if verdict.findings:
            first = verdict.findings[0]
            raise _failure(first.signature(self.target.name))(
                "\n".join(failure(self.target.name, seen, self.case) for seen in verdict.findings)
            )

    def __repr__(self) -> str:
        """Show the case; the target's strategies say nothing about it."""
        return f"DrawnCase({self.case!r})"


def given(target: Target) -> Callable[[Callable[..., None]], Any]:
    """Make an ordinary Hypothesis test of a function that takes a case.

    The test is called with a `DrawnCase`, by position. `hypothesis.settings` and `hypothesis.example` apply as to
    any other test; settings of your own want ``deadline=None`` too, which is the default here, since judging a case
    may take longer than Hypothesis allows a test.
    """
    if not isinstance(target, Target):
        raise TargetError(f"{target!r} is no target; decorate it with gradfuzz.target")
    cases: st.SearchStrategy[Case] = gst.cases(target)
    drawn = cases.map(lambda case: DrawnCase(target, case))

    def decorate(test: Callable[..., None]) -> Any:
        if hasattr(test, _APPLIED):  # a test with settings of its own below keeps those
            return hypothesis.given(drawn)(test)
        made = hypothesis.given(drawn)(hypothesis.settings(deadline=None)(test))
        delattr(made, _APPLIED)  # so that settings above can take the place of ours
        return made

    return decorate


_FAILURES: dict[str, type[AssertionError]] = {}


def _failure(signature: str) -> type[AssertionError]:
    """Give the exception of a signature: Hypothesis tells failures apart by class and shrinks each by itself."""
    return _FAILURES.setdefault(signature, type("AssertionError", (AssertionError,), {"__doc__": signature}))


def failure(target: str, seen: Seen, case: Case | None) -> str:
    """Say what is wrong where, and give the case as Python."""
    if case is None:
        return f"{target}: {seen}"
    lines = script(Reproducer.of(seen, case)).splitlines()
    return "\n".join([f"{target}: {seen}", *(f"    {line}".rstrip() for line in lines)])
