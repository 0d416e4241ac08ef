"""The campaign's side of a corpus: what is accepted there, what is kept, and which case of a defect stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.settings import Settings
from gradfuzz.corpus import Reproducer, files, load, save
from gradfuzz.corpus.store import folder_name
from gradfuzz.errors import CorpusError
from gradfuzz.targets import judge

if TYPE_CHECKING:
    from gradfuzz.case import Case
    from gradfuzz.checker.verdict import Finding as Seen
    from gradfuzz.targets import Target

# A defect that depends on chance half of the time escapes three judgements once in eight.
TIMES = 3


def accepted(target: str, settings: Settings) -> frozenset[str]:
    """Give the signatures of a target that a person has accepted for now, by `gradfuzz accept`."""
    if settings.corpus is None:
        return frozenset()
    folder = settings.corpus / folder_name(target)
    found = set()
    for path in files(folder) if folder.is_dir() else ():
        try:
            reproducer = load(path)
        except CorpusError:
            continue  # replay says what is wrong with it; a search needs only what can be read
        if reproducer.expect == "fail":
            found.add(reproducer.signature)
    return frozenset(found)


def keep(finding: Finding, settings: Settings, target: Target | None) -> Finding:
    """Save a finding's case and give the finding with its path, or with the reason why it is not saved.

    The target judges whether an older, smaller reproducer of the signature still shows it; None takes its word.
    """
    if settings.corpus is None or finding.case is None:
        return finding
    reproducer = Reproducer.of(
        finding.seen, finding.case, reliability=finding.reliability, seed=settings.seed, round=finding.round
    )
    try:
        stands = None if target is None else lambda other: _sighting(target, other.case, other.signature) is not None
        return replace(finding, path=save(reproducer, settings.corpus, stands=stands), unsaved="")
    except OSError as error:
        return replace(finding, unsaved=f"{settings.corpus}: {error.strerror or error}")
    except ValueError as error:  # CorpusError is one; a value that no file can hold is another
        return replace(finding, unsaved=str(error))


def settle(target: Target, candidates: Sequence[Finding], settings: Settings) -> Finding:
    """Judge each case of one signature again, smallest first, until one holds every time, and save that.

    When none does, the one that held most often is kept, and its reliability says so.
    """
    best, most = candidates[0], -1
    for candidate in candidates:
        seen = _sightings(target, candidate)
        if len(seen) > most:
            # What is said of it now has an explanation; while it shrank nobody asked for one.
            best, most = replace(candidate, seen=seen[0]) if seen else candidate, len(seen)
        if most == TIMES:
            break
    return keep(replace(best, reliability=f"{most}/{TIMES}"), settings, target)


def _sightings(target: Target, finding: Finding) -> list[Seen]:
    """Judge the case of a finding some times, and give what the checker said of the signature each time it showed."""
    if finding.case is None:
        return []
    found = (_sighting(target, finding.case, finding.signature, explain=n == 0) for n in range(TIMES))
    return [seen for seen in found if seen is not None]


def _sighting(target: Target, case: Case, signature: str, *, explain: bool = False) -> Seen | None:
    try:
        verdict = judge(target, case, explain=explain)
    except (RuntimeError, TypeError, ValueError):  # an old case that today's target does not take
        return None
    return next((seen for seen in verdict.findings if seen.signature(target.name) == signature), None)
