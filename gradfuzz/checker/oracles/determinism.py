"""The same question asked twice has one answer."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gradfuzz.checker.direction import Mask
from gradfuzz.checker.evaluation import Array, BackwardRaised, double_backward, flat, materialize
from gradfuzz.checker.naming import apart, element_of, one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# Repeated runs of one graph may sum in another order; anything above this many roundings is no rounding.
REPEAT_ROUNDINGS = 1e3


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
            k = int(np.flatnonzero(differs)[0])
            name, element = element_of(run.subject.wrt, run.subject.names, k)
            got, want = apart(float(other[k]), float(first[k]))
            yield Finding(Symptom.NONDETERMINISTIC, name, f"{got} ({what})", want, 1, "rev", element)
            return


def second_backward_repeats(run: Run) -> Iterator[Finding]:
    """The same call, or the same graph, differentiated twice again gives the same second derivative."""
    if run.stochastic or run.second is None:
        return
    second = run.second
    again = run.again
    try:
        if not again:  # nobody has run it meanwhile
            twice = double_backward(run.base.leaves, run.base.graph, run.v, run.second_along, retain_graph=True)
            again = (*twice.hessian_u, *twice.jacobian_u)
    except BackwardRaised as error:
        mode = "rev" if error.order == 1 else "rev-rev"
        yield Finding(
            Symptom.NONDETERMINISTIC,
            "double backward",
            one_line(error.error),
            "what it gave the first time",
            error.order,
            mode,
            exception=type(error.error).__name__,
        )
        return
    names = [f"grad_output {i}" for i in range(len(run.v))]
    count = len(second.hessian_u)
    for tensors, named, got, want in (
        (run.subject.wrt, run.subject.names, again[:count], second.hessian_u),
        (run.v, names, again[count:], second.jacobian_u),
    ):
        other, first = flat(got), flat(want)
        differs = ~_close(run, other, first)
        if differs.any():
            k = int(np.flatnonzero(differs)[0])
            name, element = element_of(tensors, named, k)
            shown, wanted = apart(float(other[k]), float(first[k]))
            what = f"{shown} (the same made again)"
            yield Finding(Symptom.NONDETERMINISTIC, name, what, wanted, 2, "rev-rev", element)
            return


def _close(run: Run, a: Array, b: Array) -> Mask:
    if np.array_equal(a, b):  # as nearly always
        return np.ones(len(b), dtype=bool)
    with np.errstate(all="ignore"):
        scale = np.abs(np.where(np.isfinite(b), b, 0.0)).max(initial=0.0)
        near = np.abs(a - b) <= REPEAT_ROUNDINGS * run.eps * scale + run.nondet_tol + run.least_difference
    return np.asarray(near | (a == b) | (np.isnan(a) & np.isnan(b)))
