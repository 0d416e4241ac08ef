"""The first calls of a check, and the choice of the precision and the point to judge in."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from gradfuzz.checker.direction import GRAD_OUTPUTS, drawn, generic
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Subject, backward
from gradfuzz.checker.line import Context
from gradfuzz.checker.promote import DOUBLES, HIGHER, Promoting
from gradfuzz.checker.run import Base, Run
from gradfuzz.checker.state import GlobalState
from gradfuzz.checker.tensors import Tensors, dense, flat, same, unflat
from gradfuzz.errors import CheckError

UNUSUAL_SEED = 0x67726164_66757A7A


@cache
def _unusual_state() -> torch.Tensor:
    """Where torch's generator stands when a check begins: a state that no function of the caller's left behind."""
    return torch.Generator().manual_seed(UNUSUAL_SEED).get_state()


def begin(
    subject: Subject,
    grad_outputs: Sequence[torch.Tensor | None] | None,
    *,
    order: int,
    seed: int,
    **declared: Any,
) -> Run:
    """Make the base calls: forward, backward twice on one graph, watching state and memory.

    Raises:
        ForwardRaised: The function refuses its inputs.
        CheckError: The grad_outputs do not fit the outputs.
    """
    # A function that seeds for itself is seen to move it.
    torch.random.set_rng_state(_unusual_state())
    base = Base(state_before=GlobalState.now())
    if subject.random:  # every call of it starts from its own seed
        base.state_before = replace(GlobalState.now(), seed=subject.seed)
    leaves = subject.leaves()
    outputs = subject.apply(subject.arguments(leaves, as_given=True))
    if not subject.random and _moved():
        subject.random = True
        return begin(subject, grad_outputs, order=order, seed=seed, **declared)
    given_values = tuple(t.detach() for t in subject.wrt)
    _written(base, "forward", given_values, leaves, subject.names)
    base.outputs = tuple(o.detach() for o in outputs)
    base.with_graph = tuple(o.requires_grad for o in outputs)
    base.leaves, base.graph = leaves, outputs
    given = _fit(grad_outputs, outputs)
    count = sum(o.numel() * (2 if o.dtype.is_complex else 1) for o in outputs)
    own = unflat(drawn(seed, GRAD_OUTPUTS, count), base.outputs)
    v = own if given is None else tuple(o if g is None else g.to(o.dtype) for g, o in zip(given, own, strict=True))
    handed = tuple(t.detach().clone(memory_format=torch.preserve_format) for t in v)
    base.v = v
    names = [f"grad_output {i}" for i in range(len(v))]
    try:
        base.grads = backward(outputs, leaves, handed, retain_graph=True)
        # Before any other backward, which would undo a switch that each backward flips.
        base.state_after = GlobalState.now()
        moved = _moved()
        _written(base, "backward", v, handed, names)
        _written(base, "backward", given_values, leaves, subject.names)
        base.grads = tuple(None if g is None else g.detach().clone() for g in base.grads)
        if moved:
            subject.random = True
    except BackwardRaised as error:
        base.error = error
    base.state_after = base.state_after or GlobalState.now()
    if base.state_before is not None:
        base.state_before.restore()
    return Run(subject, order, seed, given, v, base, **declared)


def _moved() -> bool:
    """Whether torch's generator left the state in which the check began."""
    return torch.random.get_rng_state().numpy().tobytes() != _unusual_state().numpy().tobytes()


def _written(base: Base, stage: str, before: Tensors, after: Tensors, names: Sequence[str]) -> None:
    for old, new, name in zip(before, after, names, strict=True):
        if not same(old, new.detach()) and (stage, name) not in base.written:
            base.written.append((stage, name))


def _fit(
    grad_outputs: Sequence[torch.Tensor | None] | None, outputs: Tensors
) -> tuple[torch.Tensor | None, ...] | None:
    """Match given grad_outputs with the outputs; those without a graph may be left out, as torch does."""
    if grad_outputs is None:
        return None
    given = tuple(None if g is None else dense(g) for g in grad_outputs)
    if len(given) != len(outputs):
        positions = [i for i, o in enumerate(outputs) if o.requires_grad]
        if len(given) != len(positions):
            raise CheckError(
                f"{len(given)} grad_outputs were given for {len(outputs)} differentiable outputs; give one each"
            )
        full: list[torch.Tensor | None] = [None] * len(outputs)
        for position, g in zip(positions, given, strict=True):
            full[position] = g
        given = tuple(full)
    for i, (g, o) in enumerate(zip(given, outputs, strict=True)):
        if g is not None and g.shape != o.shape:
            raise CheckError(
                f"grad_output {i} has shape {tuple(g.shape)}, its output {tuple(o.shape)}; they must be equal"
            )
    return given


def prepare(run: Run) -> None:
    """Choose the precision of judgement and the point, and find what may be moved and weighted."""
    if _is_plain(run):
        return
    double = _in_double(run)
    subject = double if double is not None else run.subject
    run.own_precision = double is None
    eps = float(np.finfo(np.float64).eps) if double is not None else run.eps
    run.context = Context(subject, run.order, eps, run.tolerance)
    run.x = subject.point
    with run.promoting():
        outputs = run.base.outputs if subject is run.subject and subject.ordinary else subject.value(run.x)
    finite_outputs = np.isfinite(flat(outputs))
    # An auxiliary output without a graph beside others that have one is meant to have none.
    meant = [flag or not any(run.base.with_graph) for flag in run.base.with_graph]
    run.notes += [f"output {i} carries no graph: left out" for i, flag in enumerate(meant) if not flag]
    graphs = np.concatenate([np.full(flat((o,)).size, flag) for o, flag in zip(outputs, meant, strict=True)])
    run.allowed_outputs = finite_outputs & graphs
    if not run.allowed_outputs.all():
        run.context.left_out = ~run.allowed_outputs
    v = unflat(flat(run.v), outputs)
    usable = np.isfinite(flat(v))
    fallback = flat(generic(run.rng(GRAD_OUTPUTS), outputs))
    values = np.where(usable, flat(v), fallback)
    values[~run.allowed_outputs] = 0.0
    run.weights = unflat(values, outputs)
    run.allowed_inputs = np.isfinite(flat(run.x))
    # Where nothing distinguishes the inputs as given from the point of judgement, its double backward serves.
    run.shared = (
        subject is run.subject
        and subject.ordinary
        and bool(run.allowed_inputs.all() and run.allowed_outputs.all() and usable.all())
    )


def _is_plain(run: Run) -> bool:
    """Prepare the usual case, in which the inputs as given are the point of judgement; tell whether it is that."""
    subject, base = run.subject, run.base
    if any(t.dtype is not torch.float64 for t in (*subject.wrt, *base.outputs)) or not subject.ordinary:
        return False
    values, weights = flat(base.outputs), flat(run.v)
    if not (all(base.with_graph) and run.finite and np.isfinite(weights).all()):
        return False
    run.x = subject.point
    inputs = flat(run.x)
    if not np.isfinite(inputs).all():
        return False
    run.context = Context(subject, run.order, run.eps, run.tolerance)
    run.weights = run.v
    run.allowed_outputs = np.ones(len(values), dtype=bool)
    run.allowed_inputs = np.ones(len(inputs), dtype=bool)
    run.shared = True
    return True


def _in_double(run: Run) -> Subject | None:
    """Give the same function on the same values in double, where it stays in double throughout."""
    subject, outputs = run.subject, run.base.outputs
    # A constant beside them may have any dtype.
    judged = [flag or not any(run.base.with_graph) for flag in run.base.with_graph]
    if all(t.dtype in DOUBLES for t in (*subject.wrt, *(o for o, j in zip(outputs, judged, strict=True) if j))):
        return subject

    def up(t: torch.Tensor) -> torch.Tensor:
        if t.dtype.is_complex:
            return t.detach().to(torch.complex128).requires_grad_(t.requires_grad)
        if t.dtype.is_floating_point:
            return t.detach().to(torch.float64).requires_grad_(t.requires_grad)
        return t

    # An argument that names the inputs' own dtype means "as the inputs are".
    double = subject.with_inputs(up, dtypes={t.dtype: HIGHER[t.dtype] for t in subject.wrt if t.dtype in HIGHER})
    shapes = [o.shape for o in outputs]
    for promoted in (False, True):
        try:
            with Promoting() if promoted else nullcontext():
                there = double.value(double.point)
        except ForwardRaised:
            continue
        low = any(j and o.dtype not in DOUBLES for o, j in zip(there, judged, strict=False))
        if not low and [o.shape for o in there] == shapes:
            run.promoted = promoted
            return double
    return None
