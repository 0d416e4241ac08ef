"""First and second derivatives against the function's own differences."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gradfuzz.checker.direction import DIRECTIONS, SETTLING, Mask, direction
from gradfuzz.checker.evaluation import BackwardRaised, First, Second, Tensors, flat, segments
from gradfuzz.checker.line import Measurement, Quantity, measure
from gradfuzz.checker.locate import first_order, second_order
from gradfuzz.checker.numeric import SCREEN, Answer
from gradfuzz.checker.oracles.nonfinite import finite_where_it_should_be
from gradfuzz.checker.run import Run
from gradfuzz.checker.settle import Bench, Decision, Outcome, settle
from gradfuzz.checker.verdict import Finding, Symptom


def derivatives_agree(run: Run) -> Iterator[Finding]:
    """Every derivative agrees with differences, within their own error.

    Notes go to the run: what could not be told, and what was told beside the point only.
    """
    if run.agreed is not None:
        run.elements += run.agreed.elements
        return
    if run.refused_second:
        run.context.order = 1
    rng = run.rng(SETTLING)
    bench = Bench(run.context, run.x, run.weights, rng, run.allowed_inputs, run.allowed_outputs)
    if not any(t.numel() for t in run.x):
        return
    if run.detached and run.context.order >= 2:
        # What is meant to carry no graph has a first derivative all the same, and takes no part in the second.
        wrong = list(_first_derivative(run, bench))
        yield from wrong
        if wrong:
            return
        bench.allowed_inputs = run.allowed_inputs = _recorded(run)
        if not bench.allowed_inputs.any():
            return
    u, analytic = _analytic(run, bench)
    yield from finite_where_it_should_be(run, bench, analytic)
    if not np.isfinite(flat(analytic.gradients)).all():
        u, analytic = _analytic(run, bench)  # along the elements that are left
    first = measure(run.context, run.x, u, run.weights, rng, analytic=analytic)
    run.measured = first
    run.elements += sum(int((c.answers == Answer.AGREES).sum()) for c in first.comparisons.values())
    detached = list(_without_graph(run, analytic))
    yield from detached
    if first.agrees:
        return
    slope = settle(bench, Quantity.SLOPE, _telling(bench, first))
    _note(run, slope, "first derivative")
    if slope.wrong:
        run.first_order_wrong = True
        yield first_order(run, bench, slope)
        return
    if run.context.order < 2 or detached:
        return
    jacobian = settle(bench, Quantity.JACOBIAN, first)
    _note(run, jacobian, "derivative by grad_output")
    if jacobian.wrong:
        finding = first_order(run, bench, jacobian)
        yield finding
        run.first_order_wrong, run.second_order_wrong = finding.order == 1, finding.order == 2
        return
    hessian = settle(bench, Quantity.HESSIAN, first)
    _note(run, hessian, "second derivative")
    if hessian.wrong:
        run.second_order_wrong = True
        yield second_order(run, bench, hessian)


def _first_derivative(run: Run, bench: Bench) -> Iterator[Finding]:
    """Judge the gradient alone, of every input."""
    context = replace(run.context, order=1)
    alone = replace(bench, context=context)
    u = direction(run.rng(DIRECTIONS), run.x, run.allowed_inputs)
    decision = settle(alone, Quantity.SLOPE, measure(context, run.x, u, run.weights, bench.rng))
    _note(run, decision, "first derivative")
    if decision.wrong:
        run.first_order_wrong = True
        yield first_order(run, alone, decision)


def _recorded(run: Run) -> Mask:
    """The elements of inputs whose gradient is not declared to carry no graph."""
    allowed = np.ones(len(flat(run.x)), dtype=bool) if run.allowed_inputs is None else run.allowed_inputs.copy()
    for name, part in zip(run.subject.names, segments(run.x), strict=True):
        if name in run.detached:
            allowed[part] = False
    return allowed


def _telling(bench: Bench, first: Measurement) -> Measurement:
    """Give the measurement to settle the first order by.

    Grad_outputs of zeros or a lucky few hide a wrong gradient, whose second derivatives then look wrong: a vjp of G
    is H u only where G is a gradient. So what agrees beside a contradiction is asked again with generic ones.
    """
    others = (Quantity.JACOBIAN, Quantity.HESSIAN)
    if first.answer(Quantity.SLOPE) is Answer.AGREES and any(
        first.answer(quantity) is Answer.CONTRADICTS for quantity in others
    ):
        again = bench.fresh(bench.x, SCREEN)
        if again is not None and again.answer(Quantity.SLOPE) is Answer.CONTRADICTS:
            return again
    return first


def _analytic(run: Run, bench: Bench) -> tuple[Tensors, First]:
    if run.shared and run.second is not None and run.context.order >= 2 and bench.allowed_inputs is run.allowed_inputs:
        return run.second_along, run.second
    u = direction(run.rng(DIRECTIONS), run.x, bench.allowed_inputs)
    subject = run.context.subject
    if run.context.order >= 2:
        try:
            return u, subject.second(run.x, run.weights, u)
        except BackwardRaised:
            # Only in double, or only with these grad_outputs: the first order can still be judged.
            run.reasons.append("double backward raises where derivatives are judged")
            run.context.order = 1
    return u, subject.gradient(run.x, run.weights)


def _note(run: Run, decision: Decision, name: str) -> None:
    if decision.outcome is Outcome.UNKNOWN:
        run.reasons.append(f"{name}: differences did not converge, neither at the inputs nor beside them")
    elif decision.outcome is Outcome.RIGHT_NEARBY:
        run.notes.append(f"{name}: judged beside the inputs, which lie on a kink or cannot be judged")


def _without_graph(run: Run, analytic: First) -> Iterator[Finding]:
    """A gradient that is not zero depends on its grad_output, so it must carry a graph."""
    if not isinstance(analytic, Second):
        return
    for name, grad, detached in zip(run.subject.names, analytic.grads, analytic.detached, strict=True):
        if not detached or grad is None or name in run.detached:
            continue
        values = flat((grad,))
        if np.isfinite(values).all() and values.any():
            yield Finding(
                Symptom.DETACHED,
                name,
                "a gradient without a graph",
                "a gradient that can be differentiated",
                2,
                "rev-rev",
                explanation="the backward computes it where autograd does not record (detach, no_grad, .data or numpy)",
            )
