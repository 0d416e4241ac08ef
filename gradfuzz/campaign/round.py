"""Rounds: one target, one seed, some hundred cases; re-runnable alone."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import torch
from hypothesis.errors import Flaky, Unsatisfiable

from gradfuzz import strategies as gst
from gradfuzz.campaign.settings import Settings
from gradfuzz.checker.verdict import Finding as Seen
from gradfuzz.checker.verdict import Status, Verdict
from gradfuzz.errors import CheckError, GradfuzzError
from gradfuzz.strategies.case import Outputs, outputs_of
from gradfuzz.targets import judge

if TYPE_CHECKING:
    from gradfuzz.case import Case
    from gradfuzz.targets import Target

# Enough that a round's fixed cost (some milliseconds) vanishes; few enough that what one round learnt
# (signatures now known) soon serves the next.
CASES = 200

# A shrink takes 20 to 120 attempts, of up to a tenth of a second each. It gets half of the time that is left, so
# that the next finding has its share, but no more than this.
MOST_SHRINK_SECONDS = 10.0

# Attempts without a smaller case after which a shrink is over; the longest gap seen before one more was 69.
STALE = 100

# Hypothesis takes a seed of any size; 8 bytes of a digest are an own seed for every round there will be.
SEED_BYTES = 8

# Only shard so far; part of the seed, so that shards of one campaign draw different cases.
SHARD = 0


def round_seed(seed: int, target: str, number: int) -> int:
    """Give the seed of a round, its own for every campaign, target and round."""
    digest = sha256(f"{seed}|{target}|{SHARD}|{number}".encode()).digest()
    return int.from_bytes(digest[:SEED_BYTES], "big")


class OutOfTimeError(BaseException):
    """Ends a round at once. Hypothesis takes an Exception for a failing case, and lets this through."""


class JudgeError(Exception):
    """The judge itself failed on a case: an error of ours, not of the target."""


class DrawError(Exception):
    """No case could be drawn: what the target declares of its arguments is at fault."""


class Shown(Exception):
    """A case shows a signature; a subclass a signature, because Hypothesis tells failures apart by class."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A case that shows a defect, and when it was come by.

    Attributes:
        seen: What the checker says of the case.
        case: The case.
        cases: Cases drawn in this round up to and including the first that showed the signature.
        at: When that was, on the monotonic clock.
    """

    seen: Seen
    case: Case
    cases: int
    at: float


def size_of(case: Case) -> tuple[int, int, int]:
    """Measure how much there is to read in a case: elements, tensors, characters."""
    elements = sum(len(storage.elements) for storage in case.storages)
    return elements, len(case.inputs) + len(case.storages), len(repr(case))


@dataclass
class Round:
    """A search for one signature that is not yet known, and the attempt to shrink its case.

    Before the first such signature shows, no case fails; from then on, only that signature fails a case.
    So every case keeps its outcome, and Hypothesis never takes one for flaky because of us.

    Attributes:
        target: What is searched.
        settings: What the campaign was asked for.
        seed: The round's own seed.
        known: Signatures that are not looked for.
        deadline: When drawing ends, on the monotonic clock.
        reserve: Seconds that a shrink may take in any case, beyond the deadline where need be.
        focus: The signature that fails a case; None until the first is seen.
        cases: How many cases are drawn at most.
        stopped: Asked before each case whether to end at once.
        flight: Told each case before it is judged, and None after.
        on_case: Called when a drawn case has been counted.
        on_sight: Told of the first case of each signature.
    """

    target: Target
    settings: Settings
    seed: int
    known: frozenset[str]
    deadline: float
    reserve: float = 0.0
    focus: str | None = None
    cases: int = CASES
    stopped: Callable[[], bool] = lambda: False
    flight: Callable[[Case | None], None] = lambda case: None
    on_case: Callable[[], None] = lambda: None
    on_sight: Callable[[Sighting], None] = lambda sighting: None

    drawn: int = 0
    rejected: int = 0
    inconclusive: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    swallowed: set[str] = field(default_factory=set)
    first: dict[str, Sighting] = field(default_factory=dict)
    smallest: dict[str, Sighting] = field(default_factory=dict)
    _last: dict[str, Sighting] = field(default_factory=dict)
    _shrinking: bool = False
    _stale: int = 0

    def run(self) -> None:
        """Draw, judge and shrink; what was seen is in `first` and `smallest`, however the round ended.

        Raises:
            DrawError: The strategies gave no case.
            JudgeError: The judge failed.
        """
        dtypes, devices = self.settings.dtypes, self.settings.devices or "cpu"
        cases = gst.cases(self.target, dtypes=dtypes, devices=devices, probe=self._outputs)
        probe = hypothesis.given(cases)(self._probe_of())
        probe = hypothesis.settings(
            max_examples=self.cases,
            database=None,
            derandomize=False,
            deadline=None,
            phases=(hypothesis.Phase.generate, hypothesis.Phase.shrink),
            suppress_health_check=list(hypothesis.HealthCheck),  # pyright: ignore[reportArgumentType]  # a metaclass hides it
            report_multiple_bugs=False,  # so that shrinking starts at once; the next round looks past this one
            print_blob=False,
            verbosity=hypothesis.Verbosity.quiet,
        )(hypothesis.seed(self.seed)(probe))
        try:
            with _torch_generator_kept():
                probe()
        except (OutOfTimeError, Flaky):
            return  # flaky is said when the finding is judged again
        except Shown:
            if self.focus is not None:  # Hypothesis ends on the smallest case it knows
                self.smallest[self.focus] = self._last[self.focus]
        except JudgeError:
            raise
        except Unsatisfiable:
            raise DrawError("its strategies draw nothing: they filter every case away") from None
        except GradfuzzError as error:
            raise DrawError(str(error)) from error
        except Exception as error:
            raise DrawError(f"drawing its arguments raised {type(error).__name__}: {error}") from error

    def _outputs(self, case: Case) -> Outputs:
        """Run the forward that tells which grad_outputs to draw; it may be the end of this process."""
        self.flight(case)
        try:
            return outputs_of(self.target, case)
        finally:
            self.flight(None)

    def _probe_of(self) -> Callable[[Case], None]:
        def probe(case: Case) -> None:
            self._probe(case)

        return probe

    def _probe(self, case: Case) -> None:
        if time.monotonic() >= self.deadline or self._stale > STALE or self.stopped():
            raise OutOfTimeError
        case = self.settings.narrow(case, self.target.checks)
        verdict = self._judge(case)
        if self._shrinking:
            self._stale += 1
        else:
            self._count(verdict)
        shown = {seen.signature(self.target.name): seen for seen in verdict.findings}
        self.swallowed.update(self.known.intersection(shown))
        for signature, seen in shown.items():
            if signature not in self.known:
                self._record(signature, seen, case)
                self.focus = self.focus or signature
        if not self._shrinking:
            self.on_case()
        if self.focus is not None and self.focus in shown:
            self._begin_to_shrink()
            raise _class_of(self.focus)

    def _judge(self, case: Case, *, explain: bool = False) -> Verdict:
        self.flight(case)
        try:
            return judge(self.target, case, explain=explain)
        except CheckError as error:  # nothing to differentiate, or a layout that cannot be judged
            return Verdict(Status.REJECTED, reason=str(error))
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(place.filename).name}, line {place.lineno}"
            raise JudgeError(f"{type(error).__name__}: {error} ({where})") from error
        finally:
            self.flight(None)

    def _count(self, verdict: Verdict) -> None:
        self.drawn += 1
        if verdict.status is Status.REJECTED:
            self.rejected += 1
            self.reasons[verdict.reason] += 1
        elif verdict.status is Status.INCONCLUSIVE:
            self.inconclusive += 1
            self.doubts[verdict.reason] += 1

    def _record(self, signature: str, seen: Seen, case: Case) -> None:
        sighting = Sighting(seen, case, self.drawn, time.monotonic())
        if signature not in self.first:
            # Told to a person at once, so with an explanation; the small one gets its own when it is judged again.
            told = self._judge(case, explain=True).findings
            seen = next((f for f in told if f.signature(self.target.name) == signature), seen)
            sighting = replace(sighting, seen=seen)
            self.first[signature] = self.smallest[signature] = sighting
            self.on_sight(sighting)
        sighting = replace(sighting, cases=self.first[signature].cases, at=self.first[signature].at)
        self._last[signature] = sighting
        size, least = size_of(case), size_of(self.smallest[signature].case)
        if size <= least:
            self.smallest[signature] = sighting
        if size < least and signature == self.focus:
            self._stale = 0

    def _begin_to_shrink(self) -> None:
        if not self._shrinking:
            self._shrinking = True
            now = time.monotonic()
            half = (self.deadline - now) / 2
            self.deadline = now + max(self.reserve, min(half, MOST_SHRINK_SECONDS))


_CLASSES: dict[str, type[Shown]] = {}


def _class_of(signature: str) -> type[Shown]:
    return _CLASSES.setdefault(signature, type("Shown", (Shown,), {"__doc__": signature}))


@contextmanager
def _torch_generator_kept() -> Iterator[None]:
    """Leave torch's default generator as found: Hypothesis' plugin for torch reseeds it for each case."""
    with torch.random.fork_rng(devices=[]):
        yield
