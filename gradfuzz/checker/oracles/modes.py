"""The second derivative by the modes that use forward AD: forward over reverse, reverse over forward, forward twice."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement, islice

import numpy as np
import torch

from gradfuzz.checker import explain, numeric
from gradfuzz.checker.direction import NESTED, direction, generic, scales, unit
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised, Second, Subject
from gradfuzz.checker.line import Measurement, Quantity, measure, neighbour
from gradfuzz.checker.locate import second_order
from gradfuzz.checker.naming import against, apart, element_of, one_line
from gradfuzz.checker.nested import Nested, along, push, push_twice, raised_in_a_jvp
from gradfuzz.checker.oracles.forward_mode import rounding
from gradfuzz.checker.run import Run
from gradfuzz.checker.screen import ROUNDINGS, Agreed, Line, agrees, close_sums
from gradfuzz.checker.settle import NEAR, Bench, settle
from gradfuzz.checker.tensors import Tensors, flat, materialize, unflat
from gradfuzz.checker.verdict import Finding, Symptom

# Beside a kink, so many points are tried for one where double backward agrees with differences.
POINTS_BESIDE = 3
# Pairs of elements whose mixed derivative is looked at to name one.
MOST_PAIRS = 64


def modes_agree(run: Run) -> Iterator[Finding]:
    """Every mode gives the second derivative that double backward gives and differences confirm."""
    if (
        not run.modes
        or run.detached
        or run.order < 2
        or run.refused_second
        or run.first_order_wrong
        or run.context.order < 2
        or not flat(run.x).size
    ):
        return
    if run.agreed is not None:
        if run.agreed.forward:
            return
        at, nested = run.agreed, run.nested()
        w = run.nested_along
    else:
        if run.second_order_wrong:
            return  # said already; the other modes are built from the same formulas
        beside = _beside(run)
        if beside is None:
            return
        at, nested, w = beside
    yield from _raised(run, nested)
    for mode in run.modes:
        if _agrees(run, at, nested, mode, w):
            continue
        finding = _judged(run, at, nested, mode, w)
        if finding is not None:
            yield finding


def _beside(run: Run) -> tuple[Agreed, Nested, Tensors] | None:
    """Find a point beside a kink where double backward agrees with differences; None where there is none."""
    rng = run.rng(NESTED)
    for _ in range(POINTS_BESIDE):
        x = neighbour(run.x, rng, NEAR)
        u, v = direction(rng, x, run.allowed_inputs), generic(rng, run.weights, run.allowed_outputs)
        try:
            second = run.context.subject.second(x, v, u)
        except (ForwardRaised, BackwardRaised):
            continue
        if run.context.left_out is False and agrees(Line(run.context, x, u, v, second, flat(u), flat(v), scales(x))):
            w = direction(rng, x, run.allowed_inputs)
            return Agreed(x, u, v, second, 0), along(run.context.subject, x, v, u, w), w
    return None


def _raised(run: Run, nested: Nested) -> Iterator[Finding]:
    """A mode may be missing; but a `jvp` that is defined may not raise."""
    for mode in run.modes:
        error = nested.missing.get(mode)
        if error is not None and "fwd" not in nested.missing and raised_in_a_jvp(error):
            yield Finding(
                Symptom.FORWARD_MODE,
                "forward",
                one_line(error),
                "a tangent",
                2,
                mode,
                exception=type(error).__name__,
                explanation="raised in a jvp",
            )


def _agrees(run: Run, at: Agreed, nested: Nested, mode: str, w: Tensors) -> bool:
    """Whether a mode's second derivative is the one of double backward, up to rounding; a missing one is."""
    got = nested.second(mode)
    if got is None:
        return True
    assert isinstance(at.analytic, Second)
    hessian = flat(at.analytic.hessian_u)
    if mode != "fwd-fwd":
        return bool((np.abs(flat(got) - hessian) <= rounding(run, hessian)).all())
    return close_sums(flat(got) * flat(at.v), hessian * flat(w), ROUNDINGS * run.context.eps)


def _judged(run: Run, at: Agreed, nested: Nested, mode: str, w: Tensors) -> Finding | None:
    """Let differences decide, with all that is known of kinks, as for double backward."""
    subject = ByMode(run.context.subject, mode, w)
    context = replace(run.context, subject=subject, quantities=subject.quantities)
    got = nested.second(mode)
    assert got is not None  # it was compared
    bench = Bench(context, at.x, at.v, run.rng(NESTED), run.allowed_inputs, run.allowed_outputs)
    if not np.isfinite(flat(got)).all():
        return _nonfinite(run, bench, at, got, mode)
    quantity = Quantity.JACOBIAN if mode == "fwd-fwd" else Quantity.HESSIAN
    u = direction(bench.rng, at.x, run.allowed_inputs)
    try:
        decision = settle(bench, quantity, measure(context, at.x, u, at.v, bench.rng))
    except (ForwardRaised, BackwardRaised):
        return None
    if not decision.wrong:
        return None
    text = explain.by_mode(run, mode, at.x)
    if mode == "fwd-fwd":
        return replace(_pair(run, decision.evidence), explanation=text)
    inner = copy.copy(run)
    inner.context = context
    finding = second_order(inner, bench, decision)
    kept = [part for part in finding.explanation.split("; ") if part.startswith("differentiated again")]
    return replace(finding, mode=mode, explanation="; ".join((text, *kept)))


def _nonfinite(run: Run, bench: Bench, at: Agreed, got: Tensors, mode: str) -> Finding | None:
    """A mode that is not finite where double backward is, and is confirmed; along another direction as well."""
    second = at.analytic
    assert isinstance(second, Second)
    u = direction(bench.rng, at.x, run.allowed_inputs)
    try:
        again = bench.context.subject.second(at.x, at.v, u)
    except (ForwardRaised, BackwardRaised):
        return None
    quantity = again.jacobian_u if mode == "fwd-fwd" else again.hessian_u
    bad = ~np.isfinite(flat(got)) & ~np.isfinite(flat(quantity))
    if not bad.any():
        return None
    k = int(np.flatnonzero(bad)[0])
    if mode == "fwd-fwd":
        where, element = element_of(run.weights, [f"output {i}" for i in range(len(run.weights))], k)
        want = "a finite number, as by double backward"
    else:
        where, element = element_of(run.context.subject.wrt, run.subject.names, k)
        want = f"{flat(second.hessian_u)[k]:.6g}, as by double backward (along a direction)"
    return Finding(
        Symptom.NONFINITE,
        where,
        f"{flat(got)[k]}",
        want,
        2,
        mode,
        element,
        "double backward is finite here, and differences of the gradient confirm it",
    )


def _pair(run: Run, m: Measurement) -> Finding:
    """Name the pair of elements whose mixed derivative by nested forward mode is furthest from the right one.

    Where none of those looked at shows it, the output along the directions that did.
    """
    subject, x = run.context.subject, m.x
    ones = unflat(np.ones(flat(m.v).size), m.v)
    best: tuple[float, int, int, float, float] | None = None
    largest = 0.0
    for i, j in islice(combinations_with_replacement(range(flat(x).size), 2), MOST_PAIRS):
        try:
            got = float(flat(push_twice(subject, x, unit(x, i), unit(x, j))).sum())
            want = float(flat(subject.second(x, ones, unit(x, i)).hessian_u)[j])
        except (ForwardRaised, BackwardRaised):
            continue
        largest = max(largest, abs(got), abs(want))
        if best is None or abs(got - want) > best[0]:
            best = (abs(got - want), i, j, got, want)
    if best is None or not best[0] > numeric.INSIGNIFICANT * largest:
        analytic, estimate = m.analytic_of(Quantity.JACOBIAN), m.estimates[Quantity.JACOBIAN]
        k = int(np.where(m.contradicting(Quantity.JACOBIAN), np.abs(analytic - estimate.value), -1.0).argmax())
        name, element = element_of(m.v, [f"output {i}" for i in range(len(m.v))], k)
        got_text, want_text = against(float(analytic[k]), float(estimate.value[k]), float(estimate.error[k]))
        return _fwd_fwd(name, got_text, f"{want_text} (along two directions)", element)
    _, i, j, got, want = best
    (name, element), (other_name, other) = (element_of(subject.wrt, run.subject.names, k) for k in (i, j))
    by = element if (name, element) == (other_name, other) else f"{element} and {other_name} {other}"
    return _fwd_fwd(name, *apart(got, want), by)


def _fwd_fwd(where: str, got: str, want: str, element: str) -> Finding:
    return Finding(Symptom.WRONG_SECOND_DERIVATIVE, where, got, want, 2, "fwd-fwd", element)


class ByMode(Subject):
    """The function with the second derivative that one of the modes gives in the place of double backward's.

    For fwd-fwd the values are the tangents J w, whose derivative along u, by output, is D2F[u, w].
    """

    def __init__(self, subject: Subject, mode: str, w: Tensors) -> None:
        self.__dict__.update(subject.__dict__)
        self.mode = mode
        self.along = w

    @property
    def quantities(self) -> frozenset[Quantity]:
        """What this subject has an answer to."""
        return frozenset({Quantity.JACOBIAN if self.mode == "fwd-fwd" else Quantity.HESSIAN})

    def gradient(
        self,
        point: Sequence[torch.Tensor] | None,
        v: Sequence[torch.Tensor | None],
        *,
        create_graph: bool = False,
        wanted: Sequence[bool] | None = None,
        fresh: bool = False,
    ) -> First:
        """Give the values and gradients that the mode's second derivative is a derivative of."""
        if self.mode != "fwd-fwd":
            return super().gradient(point, v, create_graph=create_graph, wanted=wanted, fresh=fresh)
        x = self.point if point is None else tuple(point)
        return First(push(self._plain, x, self.along), (None,) * len(x), x)

    def second(
        self, point: Sequence[torch.Tensor] | None, v: Sequence[torch.Tensor], u: Sequence[torch.Tensor]
    ) -> Second:
        """Give the second derivative by the mode.

        Raises:
            ForwardRaised: The mode has no rule here.
        """
        x = self.point if point is None else tuple(point)
        nothing = materialize((None,) * len(x), x)
        first = self.gradient(x, v)
        if self.mode == "fwd-fwd":
            pushed = push_twice(self._plain, x, u, self.along)
            return Second(first.outputs, first.grads, first.leaves, nothing, pushed, (False,) * len(x))
        nested = along(self._plain, x, v, u)
        got = nested.second(self.mode)
        if got is None:
            raise ForwardRaised(nested.missing.get(self.mode, NotImplementedError(self.mode)))
        return Second(first.outputs, first.grads, first.leaves, got, nested.tangent or (), (False,) * len(x))

    @property
    def _plain(self) -> Subject:
        plain = Subject.__new__(Subject)
        plain.__dict__.update(self.__dict__)
        return plain
