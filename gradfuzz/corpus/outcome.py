"""Replay: what has become of the defects that a corpus holds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from gradfuzz.case import Call
from gradfuzz.checker.verdict import Status, Verdict
from gradfuzz.corpus.field import one_line
from gradfuzz.corpus.reproducer import Reproducer
from gradfuzz.corpus.resolve import Resolver
from gradfuzz.corpus.store import files, load
from gradfuzz.errors import CorpusError, TargetError
from gradfuzz.targets import Target, judge

Replayed = Literal["passes", "fails", "known", "changed", "fixed", "flaky", "unloadable", "missing-target"]

# How often a failing file is judged: a defect that shows half of the time escapes three once in eight.
TIMES = 3

_EXIT_CODES: dict[Replayed, int] = {
    "passes": 0,
    "known": 0,
    "fails": 1,
    "changed": 1,
    "fixed": 1,
    "flaky": 1,
    "unloadable": 2,
    "missing-target": 2,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What replay says of one file.

    Attributes:
        path: The file.
        status: ``passes``; ``fails`` with the signature it was saved for; ``known``, which fails so as is
            expected; ``changed``, which fails with another signature; ``fixed``, which was expected to fail
            and passes; ``flaky``; ``unloadable``; ``missing-target``.
        detail: The finding, or the reason, on one line; empty where there is nothing to add.
        reproducer: What the file holds; None if it is unloadable.
        verdict: What the check said; None if there was none.
    """

    path: Path
    status: Replayed
    detail: str = ""
    reproducer: Reproducer | None = None
    verdict: Verdict | None = None


def exit_code(outcomes: Iterable[Outcome]) -> int:
    """Give the exit code of a replay: 2 if a file could not be judged, else 1 if one surprises, else 0."""
    return max((_EXIT_CODES[outcome.status] for outcome in outcomes), default=0)


def _in_short(error: Exception) -> str:
    message = str(error).strip().split("\n", 1)[0]
    return one_line(message if isinstance(error, TargetError) else f"{type(error).__name__}: {message}")


def _misfit(target: Target, call: Call) -> str:
    """Say why the function cannot take the case's arguments at all, or give nothing.

    Such a call raises, which the checker takes for a refused input: a renamed argument would pass for ever.
    """
    args, kwargs = call.arguments(call.inputs)
    try:
        signature = inspect.signature(target.fn)
    except (TypeError, ValueError):  # builtins have none
        return ""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return f"{target.name} does not take the arguments of the case: {error}"
    return ""


def _signatures(verdict: Verdict, reproducer: Reproducer) -> set[str]:
    return {finding.signature(reproducer.target) for finding in verdict.findings}


def _failing(path: Path, reproducer: Reproducer, verdicts: list[Verdict]) -> Outcome:
    seen = [verdict for verdict in verdicts if reproducer.signature in _signatures(verdict, reproducer)]
    finding = next(f for f in seen[0].findings if f.signature(reproducer.target) == reproducer.signature)
    if len(seen) < len(verdicts):
        detail = f"fails {len(seen)} of {len(verdicts)} times: {finding}"
        return Outcome(path, "flaky", one_line(detail), reproducer, seen[0])
    status: Replayed = "known" if reproducer.expect == "fail" else "fails"
    return Outcome(path, status, one_line(str(finding)), reproducer, seen[0])


def _not_failing(path: Path, reproducer: Reproducer, verdict: Verdict) -> Outcome:
    if verdict.findings:
        detail = f"saved for {reproducer.signature}; now {verdict.findings[0]}"
        return Outcome(path, "changed", one_line(detail), reproducer, verdict)
    reason = "" if verdict.status is Status.PASS else f"{verdict.status.value}: {verdict.reason}"
    status: Replayed = "fixed" if reproducer.expect == "fail" else "passes"
    return Outcome(path, status, one_line(reason), reproducer, verdict)


def _replay(path: Path, reproducer: Reproducer, target: Target) -> Outcome:
    try:
        call = reproducer.case.build()
    except Exception as error:  # a device that is not here raises what its backend likes, even AssertionError
        return Outcome(path, "unloadable", f"cannot be built here: {_in_short(error)}", reproducer)
    if problem := _misfit(target, call):
        return Outcome(path, "missing-target", one_line(problem), reproducer)
    try:
        verdicts = [judge(target, reproducer.case)]
        if reproducer.signature not in _signatures(verdicts[0], reproducer):
            return _not_failing(path, reproducer, verdicts[0])
        verdicts += [judge(target, reproducer.case) for _ in range(TIMES - 1)]
    except Exception as error:  # whatever it is, the other files are still to be replayed
        return Outcome(path, "missing-target", f"cannot be judged: {_in_short(error)}", reproducer)
    return _failing(path, reproducer, verdicts)


def _named(target: Target | Callable[..., Any]) -> Target:
    return target if isinstance(target, Target) else Target(target, {})


def _is_asked_for(path: Path, given: Path, reproducer: Reproducer, target: Target | None) -> bool:
    """Whether a file is about the target: one of a folder must name it, one named by the caller need not."""
    return target is None or path == given or reproducer.target == target.name


def replay(
    paths: Path | str | Iterable[Path | str] = "corpus",
    target: Target | Callable[..., Any] | None = None,
    *,
    allow_import: Iterable[str] = (),
    root: Path | str | None = None,
) -> Iterator[Outcome]:
    """Judge every reproducer of files and folders again, one after the other.

    Args:
        paths: Files, and folders that are searched for files.
        target: What the cases are run on; then no file's own target is looked for, nothing is imported, and
            files of a folder that are about other targets are passed over.
        allow_import: Modules that may be imported although they are not the project's own files.
        root: The folder that targets are looked for in; by default the project that each file lies in, then
            the one that is worked in.

    Raises:
        CorpusError: A path does not exist.
    """
    resolver = Resolver(allow_import=tuple(allow_import), root=None if root is None else Path(root))
    given_target = None if target is None else _named(target)
    given_paths = [paths] if isinstance(paths, Path | str) else list(paths)
    for given in map(Path, given_paths):
        for path in files(given):
            try:
                reproducer = load(path)
            except CorpusError as error:
                yield Outcome(path, "unloadable", str(error).removeprefix(f"{path}: "))
                continue
            if not _is_asked_for(path, given, reproducer, given_target):
                continue
            try:
                chosen = given_target or resolver.target(reproducer.target, path)
            except TargetError as error:
                yield Outcome(path, "missing-target", _in_short(error), reproducer)
                continue
            yield _replay(path, reproducer, chosen)
