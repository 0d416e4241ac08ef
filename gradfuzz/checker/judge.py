"""check: judge one call of a differentiable function."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from gradfuzz.checker.begin import begin, prepare
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Subject
from gradfuzz.checker.line import Tolerance
from gradfuzz.checker.maps import Map, one_order_more
from gradfuzz.checker.naming import one_line
from gradfuzz.checker.nested import MODES
from gradfuzz.checker.oracles import ORACLES, Oracle, drawn
from gradfuzz.checker.run import Run
from gradfuzz.checker.screen import screen
from gradfuzz.checker.sparse import by_values
from gradfuzz.checker.state import GlobalState
from gradfuzz.checker.verdict import Finding, Status, Symptom, Verdict
from gradfuzz.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterator

# torch's own assertion about itself: a defect wherever it happens, in forward too.
INTERNAL = "INTERNAL ASSERT FAILED"

HIGHEST_ORDER = 3
ORDERS = tuple(range(1, HIGHEST_ORDER + 1))
# What is asked of a third derivative; the rest is about calls, which have been looked at by then.
OF_THIRD_DERIVATIVES = frozenset(
    {
        Symptom.WRONG_SECOND_DERIVATIVE,
        Symptom.DETACHED,
        Symptom.NONFINITE,
        Symptom.NOT_DIFFERENTIABLE,
        Symptom.BACKWARD_ERROR,
    }
)


def check(
    func: Callable[..., Any],
    inputs: torch.Tensor | Sequence[Any],
    grad_outputs: torch.Tensor | Sequence[torch.Tensor | None] | None = None,
    *,
    order: int = 2,
    oracles: Iterable[str | Symptom] | None = None,
    seed: int = 0,
    undefined: Sequence[bool] = (),
    stochastic: bool = False,
    detached: Iterable[int] = (),
    tolerance: Tolerance | None = None,
    nondet_tol: float = 0.0,
    thorough: bool = True,
    modes: Iterable[str] | None = None,
    explain: bool = True,
) -> Verdict:
    """Judge the derivatives of `func` at `inputs`; a wrong derivative is a verdict, never an exception.

    Args:
        func: Called as ``func(*inputs)``; returns a tensor or a nest of tensors, of which the floating and
            complex ones are differentiated. It is called many times, each time on fresh tensors.
        inputs: A tensor or a sequence of arguments. Tensors that ask for a gradient are differentiated; they
            are read, never written, and their memory layout is part of what is judged. A sparse one is a function
            of its values: its pattern stands still.
        grad_outputs: One upstream gradient an output, of its shape; None for an undefined one. Without them
            generic ones are drawn.
        order: The highest derivative to look at, 1, 2 or 3; the third is looked at where the others are right.
        oracles: Names of the symptoms to look for; None looks for all.
        seed: Seeds every direction, grad_output and, for functions that draw random numbers, torch's generator.
        undefined: Which gradients are undefined in the second backward, by differentiable input.
        stochastic: Declares that two equal calls may differ.
        detached: Indices of tensor inputs whose gradient is meant to carry no graph.
        tolerance: Widens what agrees; by default only the measured error counts.
        nondet_tol: How far two equal calls may differ, absolutely.
        thorough: Whether every oracle is asked; otherwise, unless the seed is 0, the seed draws one of those that
            compare two runs of the function, so that many cases together ask all of them at a fraction of the cost.
        modes: Of the second derivative, beside ``rev-rev``: some of ``fwd-rev``, ``rev-fwd`` and ``fwd-fwd``. None
            looks at all that the function has rules for.
        explain: Whether findings are to say what kind of mistake they look like: a third of a failing check.

    Returns:
        A verdict: ``pass``, ``fail`` with findings, ``inconclusive`` with the reason, or ``rejected`` when
        the function refused the inputs.

    Raises:
        CheckError: Nothing can be judged: no input asks for a gradient, or grad_outputs do not fit.
    """
    wanted = _symptoms(oracles)
    if order not in ORDERS:
        raise CheckError(f"order={order}: derivatives of order 1, 2 and 3 are judged; give one of them")
    func, arguments = by_values(func, (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs))
    given = (grad_outputs,) if isinstance(grad_outputs, torch.Tensor) else grad_outputs
    subject = Subject(func, arguments, seed=seed)
    if not subject.wrt:
        raise CheckError("no input asks for a gradient; call requires_grad_() on a floating or complex tensor")
    names = frozenset(f"input {i}" for i in detached)
    with _undisturbed():
        try:
            run = begin(
                subject,
                given,
                order=min(order, 2),
                seed=seed,
                tolerance=tolerance or Tolerance(),
                undefined=tuple(undefined),
                stochastic=stochastic,
                detached=names,
                nondet_tol=nondet_tol,
                modes=_modes(modes),
                explain=explain,
            )
        except ForwardRaised as refusal:
            return _refused(refusal)
        verdict = _judge(run, wanted, ORACLES if thorough else drawn(seed))
        if order < HIGHEST_ORDER or verdict.status in (Status.FAIL, Status.REJECTED) or run.context.order < 2:
            return verdict
        return _with_third(run, arguments, verdict, wanted)


def _with_third(run: Run, arguments: tuple[Any, ...], verdict: Verdict, wanted: frozenset[Symptom] | None) -> Verdict:
    """Judge the gradient as a function of its own: its second derivatives are third ones."""
    weights = [v for v, flag in zip(run.v, run.base.with_graph, strict=True) if flag]
    what = Map(run.subject.func, arguments).gradient(weights, graph=True, seed=run.seed)
    third = check(
        what.func,
        what.inputs,
        oracles=OF_THIRD_DERIVATIVES if wanted is None else OF_THIRD_DERIVATIVES & wanted,
        seed=run.seed,
        tolerance=run.tolerance,
        modes=(),
        explain=run.explain,
    )
    third = one_order_more(third, what)
    reasons = [r for r in (verdict.reason, third.reason and f"third derivative: {third.reason}") if r]
    status = third.status if third.findings or verdict.status is Status.PASS else verdict.status
    return replace(
        verdict,
        status=Status.INCONCLUSIVE if status is Status.REJECTED else status,
        findings=third.findings,
        reason="" if third.findings else "; ".join(reasons),
        notes=(*verdict.notes, *third.notes),
        elements=verdict.elements + third.elements,
    )


def _modes(modes: Iterable[str] | None) -> tuple[str, ...]:
    if modes is None:
        return MODES
    asked = tuple(modes)
    for mode in asked:
        if mode not in (*MODES, "rev-rev"):
            raise CheckError(f"modes: {mode!r} is no mode; known are rev-rev, {', '.join(MODES)}")
    return tuple(mode for mode in MODES if mode in asked)


def _symptoms(oracles: Iterable[str | Symptom] | None) -> frozenset[Symptom] | None:
    if oracles is None:
        return None
    known = {s.value: s for s in Symptom}
    names = [o.value if isinstance(o, Symptom) else o for o in oracles]
    for name in names:
        if name not in known:
            raise CheckError(f"oracles: {name!r} is no symptom; known are {', '.join(known)}")
    return frozenset(known[name] for name in names)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leave torch's generator, modes and the caller's warnings as they were, whatever the function does."""
    state = GlobalState.now()
    generator = torch.random.get_rng_state()
    try:
        with warnings.catch_warnings(), torch.enable_grad():
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.random.set_rng_state(generator)
        state.restore()


def _refused(refusal: ForwardRaised) -> Verdict:
    if INTERNAL in str(refusal.error):
        finding = Finding(
            Symptom.CRASH,
            "forward",
            one_line(refusal.error),
            "a value, or a refusal that names the input",
            0,
            exception=type(refusal.error).__name__,
        )
        return Verdict(Status.FAIL, (finding,))
    return Verdict(Status.REJECTED, reason=one_line(refusal.error))


def _judge(run: Run, wanted: frozenset[Symptom] | None, oracles: Sequence[Oracle]) -> Verdict:
    if not run.base.outputs:
        return Verdict(Status.REJECTED, reason="no output is a floating or complex tensor")
    values = [o for o in run.base.outputs if o.numel()]
    if not run.finite and not any(bool(o.isfinite().any()) for o in values):
        return Verdict(Status.REJECTED, reason="no output is finite: the inputs lie outside the domain")
    try:
        prepare(run)
    except (ForwardRaised, BackwardRaised) as refusal:
        return Verdict(Status.INCONCLUSIVE, reason=f"the function refuses its own inputs, copied: {refusal}")
    with run.promoting():
        return _asked(run, wanted, oracles)


def _asked(run: Run, wanted: frozenset[Symptom] | None, oracles: Sequence[Oracle]) -> Verdict:
    if run.base.error is None:
        run.agreed = screen(run)
    findings: list[Finding] = []
    for oracle in oracles:
        if wanted is not None and not oracle.symptoms & wanted:
            continue
        if oracle.drawn and not run.finite:
            continue  # two kinds of nonsense need not be equal
        try:
            found = list(oracle.judge(run))
        except (ForwardRaised, BackwardRaised) as refusal:
            run.reasons.append(f"{oracle.judge.__name__.replace('_', ' ')}: {refusal}")
            continue
        findings += [f for f in found if wanted is None or f.symptom in wanted]
        if found and (oracle.ends or run.base.error is not None):
            break
    if findings:
        return Verdict(Status.FAIL, tuple(findings), notes=tuple(run.notes), elements=run.elements)
    if run.reasons:
        return Verdict(
            Status.INCONCLUSIVE, reason="; ".join(run.reasons), notes=tuple(run.notes), elements=run.elements
        )
    return Verdict(Status.PASS, notes=tuple(run.notes), elements=run.elements)
