"""Undefined gradients: None stands for zeros, at the first order and at the second."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch

from gradfuzz.checker.direction import DIRECTIONS, direction
from gradfuzz.checker.engine import differentiate
from gradfuzz.checker.evaluation import Array, BackwardRaised, Tensors, backward, flat, materialize
from gradfuzz.checker.naming import element_of, one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# The two runs take the same path but for additions of exact zeros, so they agree to a few roundings.
ROUNDINGS = 64


def undefined_is_zero(run: Run) -> Iterator[Finding]:
    """Every output's gradient undefined in turn, and all together; then every input's in the second backward."""
    count = len(run.base.outputs)
    with_graph = [i for i, flag in enumerate(run.base.with_graph) if flag]
    masks: list[tuple[int, ...]] = [(i,) for i in with_graph] if len(with_graph) > 1 else []
    masks.append(tuple(with_graph))
    for mask in masks:
        where = f"grad_output {mask[0]}" if len(mask) == 1 and count > 1 else "all grad_outputs"
        found = list(_first_order(run, mask, where))
        yield from found
        if found:
            return
    if run.order >= 2 and not run.refused_second:
        yield from _second_order(run)


def _undefine(outputs: Sequence[torch.Tensor], mask: Sequence[int]) -> Tensors:
    """Pass some outputs through a node whose backward hands over undefined gradients, as torch's own test does."""
    return tuple(_undefined(o) if i in mask and o.requires_grad else o for i, o in enumerate(outputs))


def _undefined(x: torch.Tensor) -> torch.Tensor:
    (handed,) = (torch._C._functions.UndefinedGrad()(x),)  # pyright: ignore[reportAttributeAccessIssue]  # no stub has it
    assert isinstance(handed, torch.Tensor)  # one in, one out
    return handed


def _first_order(run: Run, mask: tuple[int, ...], where: str) -> Iterator[Finding]:
    # On the graph of the base call, which is alive: no forward is run again.
    leaves, outputs = run.base.leaves, run.base.graph
    if len(mask) == sum(run.base.with_graph) and _gives_nothing(run, mask):
        return  # as zeros would
    zeros = tuple(torch.zeros_like(g) if i in mask else g for i, g in enumerate(run.v))
    try:
        want = materialize(backward(outputs, leaves, zeros, retain_graph=True), leaves)
    except BackwardRaised:
        return  # zeros are refused too: not a matter of undefined gradients
    try:
        got = materialize(backward(_undefine(outputs, mask), leaves, run.v, retain_graph=True), leaves)
    except BackwardRaised as error:
        yield Finding(
            Symptom.UNDEFINED_GRADIENT,
            where,
            one_line(error.error),
            "the gradients that zeros give",
            1,
            "rev",
            exception=type(error.error).__name__,
            explanation="backward is handed None for an output nobody used; treat it as zeros",
        )
        return
    yield from _differ(run, flat(got), flat(want), where, 1, "rev")


def _gives_nothing(run: Run, mask: tuple[int, ...]) -> bool:
    """Whether no defined grad_output at all gives gradients of zeros, or none."""
    leaves, outputs = run.base.leaves, run.base.graph
    try:
        grads = backward(_undefine(outputs, mask), leaves, run.v, retain_graph=True)
    except BackwardRaised:
        return False
    return all(g is None or not bool(g.any()) for g in grads)


def _second_order(run: Run) -> Iterator[Finding]:
    """Hand None to the backward's own backward for each gradient in turn."""
    u = run.second_along or direction(run.rng(DIRECTIONS), run.subject.point)
    names = run.subject.names
    masks = [(i,) for i in range(len(names))]
    drawn = tuple(i for i, flag in enumerate(run.undefined[: len(names)]) if flag)
    leaves = run.base.leaves
    v = tuple(t.detach().clone().requires_grad_() for t in run.v)
    try:
        grads = backward(run.base.graph, leaves, v, create_graph=True)
    except BackwardRaised:
        return  # reported as what it is
    targets = (*leaves, *v)
    for mask in masks if len(drawn) < 2 else [*masks, drawn]:
        name = " and ".join(names[i] for i in mask)
        try:
            want = _double(grads, targets, u, mask, undefined=False)
        except BackwardRaised:
            return
        try:
            got = _double(grads, targets, u, mask, undefined=True)
        except BackwardRaised as error:
            yield Finding(
                Symptom.UNDEFINED_GRADIENT,
                f"gradient of {name}",
                one_line(error.error),
                "the second derivatives that zeros give",
                2,
                "rev-rev",
                exception=type(error.error).__name__,
                explanation="double backward is handed None for a gradient nobody used; treat it as zeros",
            )
            return
        found = list(_differ(run, got, want, f"gradient of {name}", 2, "rev-rev"))
        yield from found
        if found:
            return


def _double(
    grads: Sequence[torch.Tensor | None], targets: Tensors, u: Tensors, unused: tuple[int, ...], *, undefined: bool
) -> Array:
    """Differentiate <G, u> without the parts of the unused inputs: undefined, or zeros."""
    chosen = [
        (_undefined(g) if undefined else g, d if undefined else torch.zeros_like(d)) if i in unused else (g, d)
        for i, (g, d) in enumerate(zip(grads, u, strict=True))
        if g is not None and g.requires_grad
    ]
    if not chosen:
        return np.zeros(flat(targets).size)
    try:
        weights = [d.to(g.dtype).reshape(g.shape) for g, d in chosen]
        result = differentiate([g for g, _ in chosen], targets, weights, retain_graph=True)
    except Exception as error:
        raise BackwardRaised(error, 2) from None
    return flat(materialize(result, targets))


def _differ(run: Run, got: Array, want: Array, where: str, order: int, mode: str) -> Iterator[Finding]:
    """Compare where both are finite: zero times an infinite Jacobian is nan and proves nothing."""
    with np.errstate(all="ignore"):
        scale = np.abs(np.where(np.isfinite(want), want, 0.0)).max(initial=0.0)
        differs = (
            np.isfinite(got)
            & np.isfinite(want)
            & ~(np.abs(got - want) <= ROUNDINGS * run.eps * scale + run.nondet_tol + run.least_difference)
        )
    if not differs.any():
        return
    k = int(np.abs(np.where(differs, got - want, 0.0)).argmax())
    inputs = sum(flat((t,)).size for t in run.subject.wrt)
    place = element_of(run.subject.wrt, run.subject.names, k) if k < inputs else ("the grad_outputs", "")
    yield Finding(
        Symptom.UNDEFINED_GRADIENT,
        where,
        f"{got[k]:.6g}",
        f"{want[k]:.6g}, as with zeros",
        order,
        mode,
        explanation=f"seen at {place[0]}" + (f", element {place[1]}" if place[1] else ""),
    )
