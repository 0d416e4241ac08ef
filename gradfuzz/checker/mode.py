"""The modes a caller may ask for by name: forward-mode AD, batching, and both applied to the gradient itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch

from gradfuzz.checker.direction import BATCH, FORWARD, direction, generator, generic
from gradfuzz.checker.evaluation import ForwardRaised, Subject, Tensors, flat
from gradfuzz.checker.judge import check
from gradfuzz.checker.line import Tolerance
from gradfuzz.checker.maps import Map, renamed
from gradfuzz.checker.naming import apart, element_of, one_line
from gradfuzz.checker.oracles.metamorphic import beyond
from gradfuzz.checker.oracles.refusal import REFUSALS
from gradfuzz.checker.verdict import Finding, Status, Symptom, Verdict

BATCH_SIZE = 2
# A batched kernel may sum in another order: a thousand roundings of the largest element, as for another layout.
BATCH_ROUNDINGS = 1e3


@dataclass(frozen=True, slots=True)
class Manner:
    """How a map is looked at: what agrees, and what the seeds are."""

    tolerance: Tolerance
    nondet_tol: float = 0.0
    seed: int = 0


def forward_mode(what: Map, manner: Manner) -> Verdict:
    """Judge forward-mode AD of a map; a part without a forward rule is a finding, for the caller asked for it."""
    mode = "fwd" if what.order == 1 else "fwd-rev"
    rng = generator(manner.seed, FORWARD)
    try:
        what.tangents(direction(rng, Subject(what.func, what.inputs).point))
    except ForwardRaised as refusal:
        error = refusal.error
        symptom = Symptom.NOT_DIFFERENTIABLE if _is_refusal(error) else Symptom.FORWARD_MODE
        return _with(Finding(symptom, "forward", one_line(error), "tangents", what.order, mode, exception=_type(error)))
    verdict = check(
        what.func,
        what.inputs,
        order=1,
        oracles=[Symptom.FORWARD_MODE],
        seed=manner.seed,
        tolerance=manner.tolerance,
    )
    return renamed(verdict, what, mode)


def repeats(what: Map, manner: Manner) -> Verdict:
    """Judge whether two equal backwards of a map give equal gradients."""
    verdict = check(
        what.func,
        what.inputs,
        order=1,
        oracles=[Symptom.NONDETERMINISTIC],
        seed=manner.seed,
        nondet_tol=manner.nondet_tol,
    )
    return renamed(verdict, what, "rev" if what.order == 1 else "rev-rev")


def batched(what: Map, manner: Manner) -> Verdict:
    """Judge the backward of a map under vmap over its grad_outputs; one that cannot be batched is a finding."""
    mode = "rev" if what.order == 1 else "rev-rev"
    leaves, outputs = what.forward()
    kept = [o for o in outputs if o.requires_grad]
    if not kept:
        return _with()
    rng = generator(manner.seed, BATCH)
    batch = [generic(rng, kept) for _ in range(BATCH_SIZE)]

    def backward(*v: torch.Tensor) -> Tensors:
        grads = torch.autograd.grad(kept, leaves, v, retain_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    try:
        backward(*batch[0])
    except Exception:  # whatever it is, it is no matter of batching, and the ordinary check reports it
        return _with()
    try:
        torch.vmap(backward)(*(torch.stack(rows) for rows in zip(*batch, strict=True)))
    except Exception as error:
        return _with(_unbatchable(error, "backward" if what.order == 1 else "double backward", what.order, mode))
    verdict = check(what.func, what.inputs, order=1, oracles=[Symptom.BATCHED], seed=manner.seed)
    return renamed(verdict, what, mode)


def batched_forward(what: Map, manner: Manner) -> Verdict:
    """Judge forward mode under vmap over its tangents; what cannot be batched is a finding."""
    rng = generator(manner.seed, BATCH)
    subject = Subject(what.func, what.inputs)
    point = subject.point
    batch = [direction(rng, point) for _ in range(BATCH_SIZE)]

    def pushed(*u: torch.Tensor) -> Tensors:
        # make_dual has no batching rule of its own; torch.func's jvp brings one.
        return cast("Tensors", torch.func.jvp(lambda *x: subject.apply(subject.arguments(x)), point, u)[1])

    try:
        loop = [what.tangents(u) for u in batch]
    except ForwardRaised:  # without batching, too: the ordinary check reports it
        return _with()
    try:
        mapped = torch.vmap(pushed)(*(torch.stack(rows) for rows in zip(*batch, strict=True)))
    except ForwardRaised as refusal:
        return _with(_unbatchable(refusal.error, "forward", what.order, "fwd"))
    except Exception as error:  # raised by vmap itself, about what the function returned
        return _with(_unbatchable(error, "forward", what.order, "fwd"))
    return _with(*_unlike(loop, mapped, what.order))


def _unlike(loop: Sequence[Tensors], mapped: Tensors, order: int) -> Iterator[Finding]:
    """Find the first entry of a batch whose tangents differ from those it has alone."""
    for i, alone in enumerate(loop):
        for k, (want, rows) in enumerate(zip(alone, mapped, strict=True)):
            wants, gots = flat((want,)), flat((rows[i],))
            allowed = BATCH_ROUNDINGS * torch.finfo(want.dtype).eps * np.abs(wants).max(initial=0.0)
            differs = beyond(gots, wants, allowed)
            if differs.any():
                worst = int(np.flatnonzero(differs)[0])
                name, element = element_of((want,), (f"output {k}",), worst)
                yield Finding(
                    Symptom.BATCHED,
                    name,
                    *apart(float(gots[worst]), float(wants[worst])),
                    order,
                    "fwd",
                    element,
                    f"in entry {i} of a batch of {BATCH_SIZE} tangents; alone it gives another tangent",
                )
                return


def _unbatchable(error: BaseException, where: str, order: int, mode: str) -> Finding:
    return Finding(
        Symptom.BATCHED,
        where,
        one_line(error),
        "what a loop gives",
        order,
        mode,
        exception=_type(error),
        explanation="it cannot run under vmap",
    )


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, NotImplementedError) or any(r in str(error).lower() for r in REFUSALS)


def _type(error: BaseException) -> str:
    return type(error).__name__


def _with(*findings: Finding) -> Verdict:
    """Give a verdict with these findings; none makes it a pass."""
    return Verdict(Status.FAIL if findings else Status.PASS, findings)
