"""Derivatives by forward-mode AD: the tangent, and the second derivative by the three modes that use it.

Along a direction u, with grad_outputs v: `fwd-rev` pushes u through the backward, `rev-fwd` differentiates the
tangent by reverse mode, and both give H u as double backward (`rev-rev`) does. `fwd-fwd` pushes a second direction w
through the push of u, and gives D2F[u, w] by output, whose inner product with v is <H u, w>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch
import torch.autograd.forward_ad as fwAD  # as torch's documentation calls it

from gradfuzz.checker import engine
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Subject, backward
from gradfuzz.checker.tensors import Tensors, materialize

if TYPE_CHECKING:
    from types import TracebackType

TORCH = Path(torch.__file__).parent

MODES = ("fwd-rev", "rev-fwd", "fwd-fwd")

# How torch says that forward mode was never promised; anything else was raised by code that was meant to work.
MISSING_RULE = (
    "has not been implemented",
    "not implemented",
    "does not support",
    "not supported",
    "unsupported",
    "must override the setup_context",
    "doesn't support",
    "is not differentiable",
)


@dataclass(slots=True)
class Nested:
    """What forward mode gave at one point; None where it has no rule, the reason in `missing`.

    Attributes:
        tangent: J u, one tensor an output.
        fwd_rev: H u by forward over reverse, one tensor an input.
        rev_fwd: H u by reverse over forward, one tensor an input.
        fwd_fwd: D2F[u, w] by forward over forward, one tensor an output.
        gradients: G itself, which comes with fwd_rev.
        missing: By mode, what was raised where nothing could be had.
    """

    tangent: Tensors | None = None
    fwd_rev: Tensors | None = None
    rev_fwd: Tensors | None = None
    fwd_fwd: Tensors | None = None
    gradients: Tensors | None = None
    missing: dict[str, BaseException] = field(default_factory=dict)

    def second(self, mode: str) -> Tensors | None:
        """The second derivative by one of `MODES`."""
        return {"fwd-rev": self.fwd_rev, "rev-fwd": self.rev_fwd, "fwd-fwd": self.fwd_fwd}[mode]


def push(subject: Subject, x: Sequence[torch.Tensor], u: Sequence[torch.Tensor]) -> Tensors:
    """Give J u by forward mode, zeros for an output that does not depend on x.

    Raises:
        ForwardRaised: Some part of the function has no forward rule, or the rule raised.
    """
    with fwAD.dual_level():
        duals = tuple(fwAD.make_dual(p.detach().clone(), t.detach().clone()) for p, t in zip(x, u, strict=True))
        pairs = [fwAD.unpack_dual(o) for o in subject.apply(subject.arguments(duals))]
        return materialize([p.tangent for p in pairs], [p.primal for p in pairs])


def along(
    subject: Subject,
    x: Sequence[torch.Tensor],
    v: Sequence[torch.Tensor],
    u: Sequence[torch.Tensor],
    w: Sequence[torch.Tensor] | None = None,
    *,
    order: int = 2,
) -> Nested:
    """Take everything that forward mode gives at x along u: one dual call serves the first three, a nested one fwd-fwd.

    Args:
        subject: The function.
        x: The point.
        v: The grad_outputs.
        u: The direction.
        w: The second direction of fwd-fwd; without it that mode is left out.
        order: 1 takes the tangent alone.
    """
    result = Nested()
    leaves = tuple(p.detach().clone().requires_grad_(order >= 2) for p in x)
    with fwAD.dual_level():
        try:
            duals = tuple(fwAD.make_dual(p, t.detach().clone()) for p, t in zip(leaves, u, strict=True))
            outputs = subject.apply(subject.arguments(duals))
        except ForwardRaised as refusal:
            result.missing = dict.fromkeys(("fwd", *MODES), refusal.error)
            return result
        pairs = [fwAD.unpack_dual(o) for o in outputs]
        tangents = [p.tangent for p in pairs]
        result.tangent = materialize(tangents, [p.primal for p in pairs])
        if order < 2:
            return result
        try:
            # Recorded, as whoever differentiates twice does: some backwards take shortcuts when they are not.
            grads = backward(outputs, leaves, _still(v), create_graph=True)
            both = [(None, None) if g is None else fwAD.unpack_dual(g) for g in grads]
            result.gradients = materialize([primal for primal, _ in both], leaves)
            result.fwd_rev = materialize([tangent for _, tangent in both], leaves)
        except (BackwardRaised, RuntimeError) as refusal:
            result.missing["fwd-rev"] = getattr(refusal, "error", refusal)
    # Outside the dual level: within it, this backward would be pushed through as well.
    carried = [(t, g) for t, g in zip(tangents, v, strict=True) if t is not None and t.requires_grad]
    try:
        given = backward([t for t, _ in carried], leaves, [g for _, g in carried])
        result.rev_fwd = materialize(given, leaves)
    except BackwardRaised as refusal:
        result.missing["rev-fwd"] = refusal.error
    if w is not None:
        try:
            result.fwd_fwd = push_twice(subject, x, u, w)
        except ForwardRaised as refusal:
            result.missing["fwd-fwd"] = refusal.error
    return result


def _still(v: Sequence[torch.Tensor]) -> Tensors:
    """Give v with tangents of zeros.

    Where a tensor has none, torch multiplies by an immaterial zero, whose kernel is ten times slower than the product.
    """
    return tuple(fwAD.make_dual(g.detach(), torch.zeros_like(g)) for g in v)


def push_twice(
    subject: Subject, x: Sequence[torch.Tensor], u: Sequence[torch.Tensor], w: Sequence[torch.Tensor]
) -> Tensors:
    """Give D2F[u, w] by nested forward mode, which torch has in torch.func alone.

    Raises:
        ForwardRaised: Some part of the function has no forward rule that torch.func can use, or the rule raised.
    """

    def call(*point: torch.Tensor) -> Tensors:
        return subject.apply(subject.arguments(point))

    try:
        result = engine.push_twice(call, tuple(p.detach() for p in x), u, w)
    except ForwardRaised:
        raise
    except Exception as error:
        raise ForwardRaised(error) from None
    return tuple(t.detach() for t in result)


def never_promised(error: BaseException) -> bool:
    """Whether an exception says that there is no forward rule, rather than that a rule failed."""
    return isinstance(error, NotImplementedError) or any(words in str(error) for words in MISSING_RULE)


def raised_in_a_jvp(error: BaseException) -> bool:
    """Whether an exception came out of a `jvp` that a Function defines: forward mode was promised there."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_name == "jvp" and not Path(code.co_filename).is_relative_to(TORCH):
            return True
        trace = trace.tb_next
    return False
