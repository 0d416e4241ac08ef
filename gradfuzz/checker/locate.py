"""Where a derivative is wrong: the input and the element, with got and want as a person would check them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gradfuzz.checker import explain, numeric
from gradfuzz.checker.column import of_gradients, scale_of, sharpest
from gradfuzz.checker.direction import unit
from gradfuzz.checker.evaluation import Array, BackwardRaised, ForwardRaised, Second, Tensors, flat, segments, unflat
from gradfuzz.checker.line import Measurement, Quantity, measure, sample
from gradfuzz.checker.naming import against, element_of
from gradfuzz.checker.numeric import Answer, Estimate
from gradfuzz.checker.run import Run
from gradfuzz.checker.settle import Bench, Decision, Outcome
from gradfuzz.checker.verdict import Finding, Symptom

# The Jacobian is walked column by column up to this many; beyond it halves are discarded first.
MOST_COLUMNS = 64

AT_POINT = "only at this very point: a special case in the code"
AT_KINK = "outside both one-sided slopes of a kink"


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a Jacobian: the derivatives by element `index`, analytic beside numeric."""

    index: int
    analytic: Array
    estimate: Estimate
    mismatch: Array


def _gradient_column(run: Run, x: Tensors, v: Tensors, index: int) -> Column:
    """Compare G's element `index` with the difference quotient of <v, F> along it."""
    context = run.context
    s = scale_of(x, index)
    first = context.subject.gradient(x, v)
    weights = flat(v)
    u = unit(x, index, s)

    def along(spec: numeric.LadderSpec) -> numeric.Samples:
        return sample(context, x, u, v, first, context.spec(spec), gradients=False)[0].dot(weights)

    estimate, _ = sharpest(along, context.eps)
    estimate = Estimate(estimate.value / s, estimate.error / s)
    analytic = flat(first.gradients)[index : index + 1]
    return Column(index, analytic, estimate, _mismatch(analytic, estimate))


def _mismatch(analytic: Array, estimate: Estimate, least_scale: float = 0.0) -> Array:
    """|a - m| over what would agree; 0 where nothing is known."""
    with np.errstate(all="ignore"):
        scale = np.maximum(np.maximum(np.abs(analytic), np.abs(estimate.value)), least_scale)
        allowed = numeric.AGREE_BARS * estimate.error + numeric.INSIGNIFICANT * scale
        ratio = np.abs(analytic - estimate.value) / np.maximum(allowed, np.finfo(float).tiny)
    return np.where(np.isfinite(estimate.error), np.nan_to_num(ratio, nan=0.0, posinf=1e300), 0.0)


def _candidates(run: Run, decision: Decision, bench: Bench, quantity: Quantity) -> list[int]:
    """Elements to look at, at most MOST_COLUMNS: halves whose own direction agrees are discarded."""
    m = decision.evidence
    u = flat(m.u)
    indices = [int(i) for i in np.flatnonzero(u != 0)]
    while len(indices) > MOST_COLUMNS:
        half = len(indices) // 2
        parts = (indices[:half], indices[half:])
        scores = []
        for part in parts:
            masked = np.zeros_like(u)
            masked[part] = u[part]
            try:
                there = measure(run.context, m.x, unflat(masked, m.x), m.v, bench.rng)
                comparison = there.comparisons.get(quantity)
                scores.append(float(np.nanmax(comparison.mismatch, initial=0.0)) if comparison else 0.0)
            except (ForwardRaised, BackwardRaised):
                scores.append(0.0)
        indices = parts[int(np.argmax(scores))]
    return indices


def _ones(run: Run, v: Tensors) -> Tensors:
    """Ones for every output that is finite, whatever the grad_outputs of the case: zeros there hide everything."""
    count = flat(v).size
    allowed = run.allowed_outputs if run.allowed_outputs is not None else np.ones(count, dtype=bool)
    return unflat(np.where(allowed, 1.0, 0.0), v)


def first_order(run: Run, bench: Bench, decision: Decision) -> Finding:
    """Find the element whose gradient is wrong most clearly; ones for grad_outputs if they show it too.

    Where no gradient is wrong by itself, it is the derivative by a grad_output that is: second order.
    """
    m = decision.evidence
    ones = _ones(run, m.v)
    columns: list[tuple[Column, Tensors]] = []
    for index in _candidates(run, decision, bench, Quantity.SLOPE):
        for v in (ones, m.v):
            try:
                column = _gradient_column(run, m.x, v, index)
            except (ForwardRaised, BackwardRaised):
                continue
            columns.append((column, v))
            if column.mismatch[0] > 1:
                break
    largest = max((abs(float(c.analytic[0])) for c, _ in columns), default=0.0)
    shares = numeric.SMALLEST_SHARE * largest
    columns.sort(key=lambda pair: -float(_mismatch(pair[0].analytic, pair[0].estimate, shares)[0]))
    if columns and columns[0][0].mismatch[0] > 1:
        column, v = columns[0]
        shown = [c for c, w in columns if w is v]
        name, element = element_of(run.context.subject.wrt, run.subject.names, column.index)
        all_detached = not any(run.base.with_graph)
        suspects = [c.index for c in shown if c.mismatch[0] > 1]
        text = "no output carries a graph" if all_detached else explain.first_order(run, m.x, suspects, column.index)
        shown_got, shown_want = against(
            float(column.analytic[0]), float(column.estimate.value[0]), float(column.estimate.error[0])
        )
        if decision.outcome is Outcome.WRONG_AT_KINK:
            shown_want = _between(run, m.x, v, column.index) or shown_want
        return Finding(
            Symptom.DETACHED if all_detached else Symptom.WRONG_GRADIENT,
            name,
            shown_got,
            shown_want,
            1,
            "rev",
            element,
            _place(decision, text),
            mismatch=float(column.mismatch[0]),
        )
    if text := explain.recorded(run, m.x, m.v):
        # Columns ask for a gradient alone, as training does; what contradicted was one that is recorded.
        finding = _along_direction(run, decision, Quantity.SLOPE, Symptom.WRONG_GRADIENT, 1, "rev")
        return replace(finding, explanation=text)
    if decision.outcome is Outcome.WRONG_AT_KINK or Quantity.JACOBIAN not in m.comparisons:
        return _along_direction(run, decision, Quantity.SLOPE, Symptom.WRONG_GRADIENT, 1, "rev")
    detached = isinstance(m.analytic, Second) and not flat(m.analytic.jacobian_u).any()
    symptom = Symptom.DETACHED if detached else Symptom.WRONG_SECOND_DERIVATIVE
    return _along_direction(run, decision, Quantity.JACOBIAN, symptom, 2, "rev-rev")


def _between(run: Run, x: Tensors, v: Tensors, index: int) -> str:
    """Say between which one-sided slopes any answer at a kink would be right; nothing where they are not known."""
    context = run.context
    s = scale_of(x, index)
    first = context.subject.gradient(x, v)
    samples, _ = sample(context, x, unit(x, index, s), v, first, context.spec(numeric.FINE), gradients=False)
    line = samples.dot(flat(v))
    ends = [numeric.one_sided(line, side, noise=np.zeros(1), eps=context.eps) for side in (-1, 1)]
    if not all(np.isfinite(end.error[0]) for end in ends):
        return ""
    low, high = sorted(float(end.value[0]) / s for end in ends)
    return f"a number from {low:.6g} to {high:.6g}"


def _place(decision: Decision, text: str) -> str:
    note = {Outcome.WRONG_AT_POINT: AT_POINT, Outcome.WRONG_AT_KINK: AT_KINK}.get(decision.outcome, "")
    return "; ".join(part for part in (text, note) if part)


def _along_direction(
    run: Run, decision: Decision, quantity: Quantity, symptom: Symptom, order: int, mode: str
) -> Finding:
    """Report the worst element of the vectors along the direction itself, where no single column shows it."""
    m = decision.evidence
    analytic, estimate = m.analytic_of(quantity), m.estimates[quantity]
    comparison = m.comparisons[quantity]
    wrong = comparison.answers == Answer.CONTRADICTS
    score = np.where(wrong, np.nan_to_num(comparison.mismatch, nan=1e300, posinf=1e300), -1.0)
    k = int(score.argmax())
    got, want = against(float(analytic[k]), float(estimate.value[k]), float(estimate.error[k]))
    if quantity is Quantity.HESSIAN:
        where, element = element_of(run.context.subject.wrt, run.subject.names, k)
    elif quantity is Quantity.JACOBIAN:
        parts = segments(m.v)
        output = next(i for i, part in enumerate(parts) if part.start <= k < part.stop)
        _, element = element_of(m.v, [""] * len(m.v), k)
        where = f"grad_output {output}"
    else:
        where, element = _worst_input(run, m), ""
    return Finding(
        symptom,
        where,
        got,
        f"{want} (along a direction)",
        order,
        mode,
        element,
        _place(decision, ""),
        mismatch=float(score[k]),
    )


def _worst_input(run: Run, m: Measurement) -> str:
    sizes = [float(np.abs(flat(m.u)[part]).max(initial=0.0)) for part in segments(m.x)]
    return run.subject.names[int(np.argmax(sizes))]


def _hessian_columns(run: Run, x: Tensors, v: Tensors, indices: list[int]) -> list[Column]:
    """Compare the second derivatives by each element with difference quotients of G along it."""
    context = run.context
    columns = []
    for index in indices:
        s = scale_of(x, index)
        u = unit(x, index, s)
        try:
            second = context.subject.second(x, v, u)
            estimate, _ = of_gradients(context, x, v, second, u)
        except (ForwardRaised, BackwardRaised):
            continue
        estimate = Estimate(estimate.value / s, estimate.error / s)
        analytic = flat(second.hessian_u) / s
        columns.append(Column(index, analytic, estimate, np.isfinite(analytic) * _mismatch(analytic, estimate)))
    return columns


def _clearest(columns: list[Column]) -> Column | None:
    """Give the column with the clearest mismatch, None where none is one.

    What is tiny beside the largest entry of any column is judged by that: in a column of zeros rounding stands out.
    """
    sizes = [np.abs(both[np.isfinite(both)]) for c in columns for both in (c.analytic, c.estimate.value)]
    least = numeric.SMALLEST_SHARE * max((float(size.max(initial=0.0)) for size in sizes), default=0.0)
    scaled = [replace(c, mismatch=np.isfinite(c.analytic) * _mismatch(c.analytic, c.estimate, least)) for c in columns]
    best = max(scaled, key=lambda c: float(c.mismatch.max(initial=0.0)), default=None)
    return best if best is not None and best.mismatch.max(initial=0.0) > 1 else None


def second_order(run: Run, bench: Bench, decision: Decision) -> Finding:
    """Find the pair of elements whose second derivative is wrong most clearly."""
    m = decision.evidence
    candidates = _candidates(run, decision, bench, Quantity.HESSIAN)
    column: Column | None = None
    for v in (_ones(run, m.v), m.v):
        column = _clearest(_hessian_columns(run, m.x, v, candidates))
        if column is not None:
            break
    if column is None:
        return _along_direction(run, decision, Quantity.HESSIAN, Symptom.WRONG_SECOND_DERIVATIVE, 2, "rev-rev")
    k = int(column.mismatch.argmax())
    wrt, names = run.context.subject.wrt, run.subject.names
    name, element = element_of(wrt, names, k)
    other_name, other = element_of(wrt, names, column.index)
    by = "" if (other_name, other) == (name, element) else f"differentiated again by {other_name}, element {other}"
    got, want = against(float(column.analytic[k]), float(column.estimate.value[k]), float(column.estimate.error[k]))
    suspects = [int(i) for i in np.flatnonzero(column.mismatch > 1)]
    text = explain.second_order(run, m.x, suspects, k)
    return Finding(
        Symptom.WRONG_SECOND_DERIVATIVE,
        name,
        got,
        want,
        2,
        "rev-rev",
        element,
        "; ".join(part for part in (_place(decision, text), by) if part),
        mismatch=float(column.mismatch[k]),
    )
