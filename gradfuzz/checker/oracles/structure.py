"""What the base calls show by themselves: errors, memory written to, state left changed, gradients that do not fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradfuzz.checker.direction import DIRECTIONS, Mask, direction
from gradfuzz.checker.evaluation import Array, BackwardRaised, flat, materialize
from gradfuzz.checker.naming import apart, element_of, one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# Repeated runs of one graph may sum in another order; anything above this many roundings is no rounding.
REPEAT_ROUNDINGS = 1e3

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
        yield raised(error, "backward" if error.order == 1 else "double backward")


def memory_is_kept(run: Run) -> Iterator[Finding]:
    """Neither forward nor backward writes to an input or a grad_output."""
    for stage, name in run.base.written:
        order = 0 if stage == "forward" else 1
        yield Finding(
            Symptom.MUTATION,
            name,
            f"written to by {stage}",
            "unchanged memory",
            order,
            "" if order == 0 else "rev",
            explanation="whoever else holds this tensor sees the change; work on a copy",
        )


def state_is_kept(run: Run) -> Iterator[Finding]:
    """Grad mode, default dtype, thread count, seed and debugging switches are left as they were."""
    before, after = run.base.state_before, run.base.state_after
    if before is None or after is None:
        return
    for name in ("grad_mode", "default_dtype", "threads", "seed", "deterministic", "anomaly"):
        old, new = getattr(before, name), getattr(after, name)
        if old != new:
            yield Finding(Symptom.GLOBAL_STATE, name.replace("_", " "), f"{new} after the call", f"{old}, as before")


def calls_repeat(run: Run) -> Iterator[Finding]:
    """The same graph differentiated twice, and the same call made twice, give the same gradients."""
    if run.stochastic or run.base.grads is None or run.repeated:
        return
    first = flat(run.base.gradients)
    same_graph = materialize(run.base.again, run.base.leaves)
    for again, what in ((same_graph, "the same graph differentiated again"), (None, "the same call made again")):
        if again is None:
            repeated = run.subject.gradient(None, run.v)
            again = repeated.gradients
            if not run.subject.random and not _close(run, flat(repeated.values), flat(run.base.outputs)).all():
                yield Finding(Symptom.NONDETERMINISTIC, "value", "another value", "the value of the first call", 0)
                return
        other = flat(again)
        differs = ~_close(run, other, first)
        if differs.any():
            name, element, k = locate(run, differs)
            got, want = apart(float(other[k]), float(first[k]))
            yield Finding(Symptom.NONDETERMINISTIC, name, f"{got} ({what})", want, 1, "rev", element)
            return


def _close(run: Run, a: Array, b: Array) -> Mask:
    with np.errstate(all="ignore"):
        scale = np.abs(np.where(np.isfinite(b), b, 0.0)).max(initial=0.0)
        near = np.abs(a - b) <= REPEAT_ROUNDINGS * run.eps * scale + run.nondet_tol + run.least_difference
    return np.asarray(near | (a == b) | (np.isnan(a) & np.isnan(b)))


def locate(run: Run, suspects: Mask, index: int | None = None) -> tuple[str, str, int]:
    """Name the input and the element of the first suspect in a flat vector of gradients."""
    k = int(np.flatnonzero(suspects)[0]) if index is None else index
    return (*element_of(run.subject.wrt, run.subject.names, k), k)


def gradients_fit(run: Run) -> Iterator[Finding]:
    """A gradient has its input's shape, dtype and device."""
    for grad, leaf, name in zip(run.base.grads or (), run.base.leaves, run.subject.names, strict=False):
        if grad is None:
            continue
        for what, got, want in (
            ("shape", tuple(grad.shape), tuple(leaf.shape)),
            ("dtype", grad.dtype, leaf.dtype),
            ("device", grad.device, leaf.device),
        ):
            if got != want:
                yield Finding(Symptom.METADATA, name, f"{what} {got}", f"{what} {want}", 1, "rev")
