"""Backwards that raise: a derivative that is refused, and one that fails."""

from __future__ import annotations

from collections.abc import Iterator

from gradfuzz.checker.direction import DIRECTIONS, direction
from gradfuzz.checker.evaluation import BackwardRaised
from gradfuzz.checker.naming import one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# How torch and its users say that a derivative does not exist; everything else is an error.
REFUSALS = (
    "not implemented",
    "not supported",
    "does not support",
    "once_differentiable",
    "is not differentiable",
    "unsupported",
)


def raised(error: BackwardRaised, where: str = "backward") -> Finding:
    """Turn what a backward raised into a finding: refused, a gradient that does not fit, or an error."""
    cause = error.error
    text = str(cause)
    order = error.order
    mode = {1: "rev", 2: "rev-rev"}[order]
    want = "gradients" if order == 1 else "second derivatives"
    explanation = ""
    if isinstance(cause, NotImplementedError) or any(r in text.lower() for r in REFUSALS):
        symptom = Symptom.NOT_DIFFERENTIABLE
        explanation = "refused with a clear message; declare order=1 if that is meant" if order == 2 else ""
    elif "returned an invalid gradient" in text or "returned an incorrect number of gradients" in text:
        symptom = Symptom.METADATA
    else:
        symptom = Symptom.BACKWARD_ERROR
    return Finding(
        symptom, where, one_line(cause), want, order, mode, exception=type(cause).__name__, explanation=explanation
    )


def backward_returns(run: Run) -> Iterator[Finding]:
    """A backward may not raise on gradients that autograd is allowed to hand it."""
    if run.base.error is not None:
        if run.finite:
            yield raised(run.base.error)
        else:
            run.reasons.append(f"backward raises where the value is not finite: {run.base.error}")
        return
    if run.order < 2 or run.second is not None:
        return
    u = direction(run.rng(DIRECTIONS), run.subject.point)
    try:
        run.differentiate_twice(u)
    except BackwardRaised as error:
        run.refused_second = True
        if not run.finite:
            run.reasons.append(f"double backward raises where the value is not finite: {error}")
            return
        # The plain backward has returned: one that raises only where it is recorded owes the second order.
        where = "backward with create_graph" if error.order == 1 else "double backward"
        yield raised(BackwardRaised(error.error, order=2), where)
