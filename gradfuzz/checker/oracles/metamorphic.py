"""Two runs of the same function that must agree: how far they may differ, and the findings where they differ more."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import torch

from gradfuzz.checker.answers import Answers
from gradfuzz.checker.direction import JITTER, Mask, scales
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised, backward, double_backward
from gradfuzz.checker.line import JITTER_DRAWS, JITTER_ROUNDINGS
from gradfuzz.checker.naming import apart, element_of, one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.state import Draws
from gradfuzz.checker.tensors import Array, Tensors, flat, unflat
from gradfuzz.checker.verdict import Finding, Symptom

# Another layout may sum in another order: a thousand roundings of the largest element, and 16 times what two
# roundings of the inputs do to the gradient.
ROUNDINGS = 1e3
NOISE_FACTOR = 16
# Where a gradient cancels to nothing, its rounding is that of its natural scale, |F| |v| / |x|: 16 roundings of
# it, and in double nothing that a maintainer would act on.
NATURAL_ROUNDINGS = 16
NATURAL_INSIGNIFICANT = 1e-10
# What a finding of each order is about.
WHAT = ("value", "gradient", "second derivative")


def contiguous(run: Run) -> Answers:
    """Give what contiguous inputs and grad_outputs give; the base calls have said so where they were that.

    Raises:
        ForwardRaised: The function refuses the inputs.
        BackwardRaised: A backward raised.
    """
    return run.given if run.subject.ordinary and all(g.is_contiguous() for g in run.v) else afresh(run)


def afresh(run: Run, point: Tensors | None = None, v: Tensors | None = None) -> Answers:
    """Run the function on fresh contiguous inputs and grad_outputs, by default those of the check."""
    weights = tuple(g.clone(memory_format=torch.contiguous_format) for g in (run.v if v is None else v))
    x = run.subject.point if point is None else point
    return answers(run, *run.subject.forward(x), weights)


def answers(
    run: Run,
    leaves: Tensors,
    outputs: Tensors,
    v: Sequence[torch.Tensor],
    u: Tensors | None = None,
    *,
    retain: bool = False,
) -> Answers:
    """Run the backwards of a forward at hand, with `v` as it lies in memory, the second along the run's u.

    Raises:
        BackwardRaised: A backward raised.
    """
    if run.second is None:
        grads = backward(outputs, leaves, v, retain_graph=retain)
        return Answers.of(First(outputs, grads, leaves))
    return Answers.of(double_backward(leaves, outputs, v, run.second_along, retain_graph=retain, as_given=True))


def differing(run: Run, got: Array, want: Array, *, largest_term: float = 0.0) -> Mask:
    """The elements of G by which two runs differ beyond rounding, as a mask; nan equals nan."""
    with np.errstate(all="ignore"):
        allowed = _rounding(run, want) + ROUNDINGS * run.eps * largest_term
        differs = beyond(got, want, allowed)
        if differs.any():
            differs = beyond(got, want, allowed + NOISE_FACTOR * run.gradient_noise() + _natural(run))
    return np.asarray(differs)


def _rounding(run: Run, want: Array) -> float:
    return ROUNDINGS * run.eps * _largest(want) + run.nondet_tol + run.least_difference


def _natural(run: Run) -> Array:
    sizes = [_largest(flat(t)) for t in (run.base.outputs, run.v)]
    per_input = np.maximum(scales(run.subject.point), np.finfo(float).tiny)
    return np.asarray(max(NATURAL_ROUNDINGS * run.eps, NATURAL_INSIGNIFICANT) * sizes[0] * sizes[1] / per_input)


def _differing_second(run: Run, got: Answers, want: Answers) -> tuple[Mask, Mask]:
    """The elements of d<G, u>/dx and of d<G, u>/dv by which two runs differ beyond rounding."""
    pairs = [(got.hessian_u, want.hessian_u), (got.jacobian_u, want.jacobian_u)]
    masks: list[Mask] = []
    with np.errstate(all="ignore"):
        for a, b in pairs:
            if a is None or b is None or a.shape != b.shape:
                masks.append(np.zeros(0, dtype=bool))
            else:
                masks.append(beyond(a, b, _rounding(run, b)))
        if not any(mask.any() for mask in masks):
            return masks[0], masks[1]
        # u is of the size of x: the natural scale of d<G, u>/dx is that of G, of d<G, u>/dv that of F.
        insignificant = max(NATURAL_ROUNDINGS * run.eps, NATURAL_INSIGNIFICANT)
        naturals: tuple[Array | float, ...] = (_natural(run), insignificant * _largest(flat(run.base.outputs)))
        for i, ((a, b), noise, natural) in enumerate(zip(pairs, _second_noise(run), naturals, strict=True)):
            if a is not None and b is not None and masks[i].any():
                masks[i] = beyond(a, b, _rounding(run, b) + NOISE_FACTOR * noise + natural)
    return masks[0], masks[1]


def _second_noise(run: Run) -> tuple[Array, Array]:
    """What two roundings of the inputs do to the second derivative along the run's direction."""

    def at(point: Tensors) -> tuple[Array, Array]:
        second = run.subject.second(point, run.v, run.second_along)
        return flat(second.hessian_u), flat(second.jacobian_u)

    hessian, jacobian = at(run.subject.point)
    noises = np.zeros_like(hessian), np.zeros_like(jacobian)
    for point in run.jittered():
        with suppress(ForwardRaised, BackwardRaised), np.errstate(all="ignore"):
            for noise, there, here in zip(noises, at(point), (hessian, jacobian), strict=True):
                np.fmax(noise, np.abs(there - here), out=noise)
    return noises


def beyond(got: Array, want: Array, allowed: Array | float) -> Mask:
    """The elements that differ by more than `allowed`, as a mask; nan equals nan and inf itself."""
    both_nan = np.isnan(got) & np.isnan(want)
    return np.asarray(~((np.abs(got - want) <= allowed) | (got == want) | both_nan))


def value_differs(run: Run, got: Array, want: Array) -> Mask:
    """Tell by element whether two values of F differ by more than rounding of the inputs explains."""
    with np.errstate(all="ignore"):
        allowed = ROUNDINGS * run.eps * _largest(want) + run.least_difference
        differs = beyond(got, want, allowed)
        return beyond(got, want, allowed + NOISE_FACTOR * _noise(run, want)) if differs.any() else differs


def _largest(values: Array) -> float:
    return float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))


def _noise(run: Run, want: Array) -> Array:
    """What two roundings of the inputs do to the value, by element."""
    rng = run.rng(JITTER)
    point = run.subject.point
    x = flat(point)
    noise = np.zeros_like(want)
    for _ in range(JITTER_DRAWS):
        factors = 1 + rng.choice((-1.0, 1.0), len(x)) * JITTER_ROUNDINGS * run.eps
        with np.errstate(all="ignore"), suppress(ForwardRaised):
            noise = np.fmax(noise, np.abs(flat(run.subject.value(unflat(x * factors, point))) - want))
    return noise


def compare(
    run: Run,
    symptom: Symptom,
    want: Answers,
    other: Callable[[], Answers],
    *,
    again: Callable[[], Answers] | None = None,
    near: Callable[[Tensors], Answers] | None = None,
    where: str = "",
    explanation: str,
    raising: bool = True,
) -> Iterator[Finding]:
    """Yield a finding where `other` raises in backward or differs from `want`: in F, else in G, else beyond.

    A refusal of forward is no finding. What does not repeat is no matter of what was changed, and yields nothing.

    Args:
        run: The check.
        symptom: What a difference is a symptom of.
        want: What one run gave.
        other: The other run.
        again: The first run once more; by default on contiguous inputs.
        near: The first run, made from inputs that differ by rounding from the check's. Given where both runs are at
            another point than the check is, whose noise says nothing of theirs.
        where: The place that a finding names; by default the tensor with the element that differs most.
        explanation: What was changed; ``{what}`` in it becomes what differs.
        raising: Whether a backward that raises is a finding.
    """
    try:
        got = other()
    except ForwardRaised:
        return
    except BackwardRaised as error:
        if raising:
            yield _raised(error, symptom, where, explanation)
        return
    if _alike(run, want, got):
        return
    finding = _difference(run, symptom, want, got, where, explanation)
    if finding is not None and near is not None:
        finding = _difference(run, symptom, want, _beyond_noise(run, want, got, near), where, explanation)
    if finding is None:
        return
    with suppress(ForwardRaised, BackwardRaised):
        repeated = (again or (lambda: afresh(run)))()
        if _difference(run, symptom, want, repeated, where, explanation) is None:
            yield finding


def unless_random(run: Run, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Pass on what two layouts of inputs differ in, unless the function draws random numbers.

    It may seed for itself and put torch's generator back, so that every call gives the same and nothing is seen from
    outside; but numbers fill a tensor in the order of its memory.
    """
    for finding in findings:
        with Draws() as draws, suppress(ForwardRaised):
            run.subject.value()
        if draws.seen:
            return
        yield finding


def _beyond_noise(run: Run, want: Answers, got: Answers, near: Callable[[Tensors], Answers]) -> Answers:
    """Give `got`, with what differs no more from `want` than rounded inputs explain taken over from that."""
    noises = [None if part is None else np.zeros_like(part) for part in want.parts]
    parts: list[Array | None] = []
    with np.errstate(all="ignore"):
        for point in run.jittered():
            with suppress(ForwardRaised, BackwardRaised):
                for noise, there, here in zip(noises, near(point).parts, want.parts, strict=True):
                    if noise is not None and there is not None and here is not None and there.shape == here.shape:
                        np.fmax(noise, np.abs(there - here), out=noise)
        for mine, theirs, noise in zip(got.parts, want.parts, noises, strict=True):
            if mine is None or theirs is None or noise is None or mine.shape != theirs.shape:
                parts.append(mine)
            else:
                parts.append(np.where(np.abs(mine - theirs) <= NOISE_FACTOR * noise, theirs, mine))
    values, gradients, hessian_u, jacobian_u = parts
    assert gradients is not None  # every run has them
    return Answers(values, gradients, hessian_u, jacobian_u)


def agrees(run: Run, want: Answers, other: Callable[[], Answers]) -> bool:
    """Whether another run gives the same; one that raises does not."""
    try:
        got = other()
    except (ForwardRaised, BackwardRaised):
        return False
    return _alike(run, want, got) or _difference(run, Symptom.LAYOUT_DEPENDENT, want, got, "", "") is None


def _alike(run: Run, want: Answers, got: Answers) -> bool:
    """Whether nothing differs by more than rounding of the largest element alone: the usual case, at little cost."""
    for a, b in zip(got.parts, want.parts, strict=True):
        if a is None or b is None:
            continue
        # So written that nan is not alike.
        if a.shape != b.shape or not np.abs(a - b).max(initial=0.0) <= ROUNDINGS * run.eps * np.abs(b).max(initial=0.0):
            return False
    return True


def _raised(error: BackwardRaised, symptom: Symptom, where: str, explanation: str) -> Finding:
    return Finding(
        symptom,
        where or ("backward" if error.order == 1 else "double backward"),
        one_line(error.error),
        "the same gradients" if error.order == 1 else "the same second derivatives",
        error.order,
        {1: "rev", 2: "rev-rev"}[error.order],
        explanation=explanation.replace("{what}", WHAT[error.order]),
        exception=type(error.error).__name__,
    )


def _difference(
    run: Run, symptom: Symptom, want: Answers, got: Answers, where: str, explanation: str
) -> Finding | None:
    outputs = run.base.outputs
    if want.values is not None and got.values is not None and got.values.shape == want.values.shape:
        differs = value_differs(run, got.values, want.values)
        if differs.any():
            names = [f"output {i}" for i in range(len(outputs))]
            return _at(symptom, differs, got.values, want.values, (outputs, names), 0, "", explanation)
    if got.gradients.shape != want.gradients.shape:
        return None
    inputs = run.subject.wrt, run.subject.names
    differs = differing(run, got.gradients, want.gradients, largest_term=want.largest_term)
    if differs.any():
        return _at(symptom, differs, got.gradients, want.gradients, inputs, 1, where, explanation)
    hessian, jacobian = _differing_second(run, got, want)
    if hessian.any() and got.hessian_u is not None and want.hessian_u is not None:
        return _at(symptom, hessian, got.hessian_u, want.hessian_u, inputs, 2, where, explanation)
    if jacobian.any() and got.jacobian_u is not None and want.jacobian_u is not None:
        names = [f"grad_output {i}" for i in range(len(outputs))]
        return _at(symptom, jacobian, got.jacobian_u, want.jacobian_u, (outputs, names), 2, where, explanation)
    return None


def _at(
    symptom: Symptom,
    differs: Mask,
    got: Array,
    want: Array,
    tensors: tuple[Sequence[torch.Tensor], Sequence[str]],
    order: int,
    where: str,
    explanation: str,
) -> Finding:
    """Name the element that differs most."""
    with np.errstate(all="ignore"):
        k = int(np.nan_to_num(np.abs(np.where(differs, got - want, 0.0)), nan=np.inf).argmax())
    name, element = element_of(*tensors, k)
    explanation = explanation.replace("{what}", WHAT[order])
    return Finding(
        symptom,
        where or name,
        *apart(float(got[k]), float(want[k])),
        order,
        ("", "rev", "rev-rev")[order],
        element if not where else "",
        explanation if not where else f"{explanation}; seen at {name}, element {element}",
    )
