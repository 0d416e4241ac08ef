"""What a check says: symptoms, findings, verdicts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Symptom(Enum):
    """The classes of defects, a closed list; each value is the name that reports and files carry."""

    WRONG_GRADIENT = "wrong-gradient"
    WRONG_SECOND_DERIVATIVE = "wrong-second-derivative"
    DETACHED = "detached"
    FORWARD_MODE = "forward-mode"
    UNDEFINED_GRADIENT = "undefined-gradient"
    NONFINITE = "nonfinite"
    NONDETERMINISTIC = "nondeterministic"
    METADATA = "metadata"
    MUTATION = "mutation"
    LAYOUT_DEPENDENT = "layout-dependent"
    PRECISION = "precision"
    BATCHED = "batched"
    VALUE_CHANGES = "value-changes"
    ALIASING = "aliasing"
    REQUIRES_GRAD_MASK = "requires-grad-mask"
    GLOBAL_STATE = "global-state"
    NOT_DIFFERENTIABLE = "not-differentiable"
    BACKWARD_ERROR = "backward-error"
    CRASH = "crash"
    HANG = "hang"
    OUT_OF_MEMORY = "out-of-memory"

    @property
    def meaning(self) -> str:
        """The sentence a person reads beside the name."""
        return _MEANING[self]


_MEANING = {
    Symptom.WRONG_GRADIENT: "the first derivative contradicts the function's own differences",
    Symptom.WRONG_SECOND_DERIVATIVE: "the second derivative contradicts differences of the first",
    Symptom.DETACHED: "the gradient carries no graph although its derivative is not zero",
    Symptom.FORWARD_MODE: "forward-mode AD disagrees with reverse mode or with differences",
    Symptom.UNDEFINED_GRADIENT: "an undefined grad_output is an error, or is not treated as zeros",
    Symptom.NONFINITE: "the derivative is nan or inf where the function is finite and its slopes converge",
    Symptom.NONDETERMINISTIC: "the same call gives different gradients",
    Symptom.METADATA: "a gradient's shape, dtype, device or layout does not fit its input",
    Symptom.MUTATION: "forward or backward writes to an input, a saved tensor or a grad_output",
    Symptom.LAYOUT_DEPENDENT: "the memory layout of an input or grad_output changes the result",
    Symptom.PRECISION: "a gradient is off by more than its dtype and the conditioning explain",
    Symptom.BATCHED: "the vmapped gradient differs from the loop",
    Symptom.VALUE_CHANGES: "the value depends on whether a gradient is asked for",
    Symptom.ALIASING: "passing one tensor twice, or views of one base, changes the result",
    Symptom.REQUIRES_GRAD_MASK: "a gradient depends on which other inputs ask for one",
    Symptom.GLOBAL_STATE: "grad mode, default dtype, thread count or the random generator is left changed",
    Symptom.NOT_DIFFERENTIABLE: "a derivative that the target promises is refused",
    Symptom.BACKWARD_ERROR: "backward or double backward raises",
    Symptom.CRASH: "the process dies",
    Symptom.HANG: "the call does not return",
    Symptom.OUT_OF_MEMORY: "the call eats all memory",
}


class Status(Enum):
    """What a check can say of one case."""

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Finding:
    """One defect seen in one case.

    Attributes:
        symptom: The class of the defect.
        where: The place, without values or shapes, such as ``"input 0"`` or ``"grad_output 1"``.
        got: The analytic value, or what was raised.
        want: What it should have been, with its error bar where it was measured.
        order: Of which derivative: 0 for the value, 1 for the gradient, 2 for the second derivative.
        mode: ``"rev"`` and ``"fwd"`` at first order, ``"rev-rev"`` ... at second; empty where it has none.
        element: The index of the element that ``got`` and ``want`` are about, such as ``"(0, 2)"``.
        explanation: What kind of mistake this looks like, in a sentence; empty when ambiguous.
        exception: The type name of what was raised, for the signature.
        mismatch: |got - want| over its error bar, a measure of how clear the case is; nan if none.
    """

    symptom: Symptom
    where: str
    got: str
    want: str
    order: int | None = None
    mode: str = ""
    element: str = ""
    explanation: str = ""
    exception: str = ""
    mismatch: float = float("nan")

    @property
    def place(self) -> str:
        """Where, with the element: ``input 0, element (1, 2)``."""
        return f"{self.where}, element {self.element}" if self.element else self.where

    def signature(self, target: str) -> str:
        """The identity of the defect: ``target|symptom|order|mode|where|exception``."""
        order = "" if self.order is None else str(self.order)
        return "|".join((target, self.symptom.value, order, self.mode, self.where, self.exception))

    def __str__(self) -> str:
        """Say which derivative, where, got and want on one line."""
        which = {None: "", 0: "value, ", 1: "first derivative", 2: "second derivative", 3: "third derivative"}
        name = which.get(self.order, f"derivative of order {self.order}")
        if self.order:
            name += f" ({self.mode}), " if self.mode else ", "
        text = f"{self.symptom.value}: {name}{self.place}: got {self.got}, want {self.want}"
        return f"{text} - {self.explanation}" if self.explanation else text


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of one check.

    Attributes:
        status: ``pass``, ``fail`` (with findings), ``inconclusive`` or ``rejected`` (with the reason).
        findings: At least one when the status is ``fail``, none otherwise.
        reason: Why nothing could be concluded, or why the function refused its inputs.
        notes: What a reader may want to know of a pass, such as "kink at the point itself".
        elements: The number of derivative elements that were compared and agreed with power.
    """

    status: Status
    findings: tuple[Finding, ...] = ()
    reason: str = ""
    notes: tuple[str, ...] = ()
    elements: int = 0

    @property
    def passed(self) -> bool:
        """Whether every oracle was satisfied, and at least one of them had the power to object."""
        return self.status is Status.PASS

    def with_findings(self, findings: tuple[Finding, ...]) -> Verdict:
        """Give the same verdict with other findings; none left makes it a pass."""
        if not findings and self.status is Status.FAIL:
            return replace(self, status=Status.PASS, findings=())
        return replace(self, findings=findings)

    def __bool__(self) -> bool:
        """Refuse truth: ``if check(...)`` would take an inconclusive verdict for an answer."""
        raise TypeError("a Verdict is not a bool; ask .passed, .status or .findings")
