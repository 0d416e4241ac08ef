"""Reproducers: the smallest case known for a defect, with what a person wants to know of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, get_args

from gradfuzz.case import Case
from gradfuzz.checker.verdict import Finding, Symptom

Expect = Literal["pass", "fail"]
EXPECTATIONS: tuple[str, ...] = get_args(Expect)


@dataclass(frozen=True, slots=True)
class Observed:
    """What was seen when the reproducer was found. It explains; replay does not compare it.

    Attributes:
        where: The place of the finding, such as ``"input 0"``.
        got: The analytic value, or what was raised.
        want: What it should have been, with its error bar.
        order: Of which derivative; None where that has no meaning.
        mode: Such as ``"rev-rev"``.
        element: The index that `got` and `want` are about.
        explanation: What kind of mistake it looks like.
        exception: The type name of what was raised.
        reliability: How many confirmations agreed, such as ``"3/3"``.
    """

    where: str = ""
    got: str = ""
    want: str = ""
    order: int | None = None
    mode: str = ""
    element: str = ""
    explanation: str = ""
    exception: str = ""
    reliability: str = ""

    @classmethod
    def of(cls, finding: Finding, *, reliability: str = "") -> Observed:
        """Take what a checker's finding says."""
        return cls(
            where=finding.where,
            got=finding.got,
            want=finding.want,
            order=finding.order,
            mode=finding.mode,
            element=finding.element,
            explanation=finding.explanation,
            exception=finding.exception,
            reliability=reliability,
        )

    def finding(self, symptom: Symptom) -> Finding:
        """Give the checker's finding again, without its mismatch."""
        return Finding(
            symptom=symptom,
            where=self.where,
            got=self.got,
            want=self.want,
            order=self.order,
            mode=self.mode,
            element=self.element,
            explanation=self.explanation,
            exception=self.exception,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """How a reproducer was found.

    Attributes:
        seed: The campaign's seed; None for a file written by hand.
        round: The campaign's round.
        torch: The version of torch.
        gradfuzz: The version of gradfuzz.
        date: The day, as ``YYYY-MM-DD`` in UTC.
    """

    seed: int | None = None
    round: int | None = None
    torch: str = ""
    gradfuzz: str = ""
    date: str = ""

    @classmethod
    def today(cls, *, seed: int | None = None, round: int | None = None) -> Found:
        """Take today's date and the versions that run."""
        import torch

        from gradfuzz import __version__

        date = datetime.now(UTC).date().isoformat()
        return cls(seed=seed, round=round, torch=torch.__version__, gradfuzz=__version__, date=date)


@dataclass(frozen=True, slots=True)
class Reproducer:
    """What one corpus file holds.

    Attributes:
        target: The canonical address of the target.
        signature: The identity of the defect, ``target|symptom|order|mode|where|exception``.
        symptom: The class of the defect.
        case: The case; its target is this one.
        note: A sentence for people, theirs to edit.
        expect: ``pass`` for a defect that is to be mended, ``fail`` for one that is accepted for now.
        observed: What was seen.
        found: How it was found.
    """

    target: str
    signature: str
    symptom: Symptom
    case: Case
    note: str = ""
    expect: Expect = "pass"
    observed: Observed = field(default_factory=Observed)
    found: Found = field(default_factory=Found)

    def __post_init__(self) -> None:
        """Refuse parts that speak of different targets or symptoms."""
        if not self.target:
            raise ValueError("target is empty; give its address, such as file.py::name")
        if self.case.target != self.target:
            raise ValueError(f"target {self.target!r} differs from the case's {self.case.target!r}; give one target")
        if not self.signature.startswith(head := f"{self.target}|{self.symptom.value}|"):
            raise ValueError(f"signature {self.signature!r} must start with target and symptom, {head!r}")

    @classmethod
    def of(
        cls,
        finding: Finding,
        case: Case,
        *,
        reliability: str = "",
        seed: int | None = None,
        round: int | None = None,
    ) -> Reproducer:
        """Make the reproducer of a checker's finding in a case, found just now."""
        return cls(
            target=case.target,
            signature=finding.signature(case.target),
            symptom=finding.symptom,
            case=case,
            note=str(finding),
            observed=Observed.of(finding, reliability=reliability),
            found=Found.today(seed=seed, round=round),
        )

    @property
    def is_annotated(self) -> bool:
        """Whether a person wrote the note."""
        return self.note not in ("", str(self.observed.finding(self.symptom)))
