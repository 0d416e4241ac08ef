"""Doors into torch that are narrower than its public ones: the same answers at half the price for small tensors.

Both are torch's own, without an underscore's promise; where this torch lacks one, its public door is used. The tests
hold each to what the public one says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD  # as torch's documentation calls it

from gradfuzz.errors import CheckError

Tensors = tuple[torch.Tensor, ...]

_BACKWARD: Callable[..., Any] | None = getattr(torch.autograd.graph, "_engine_run_backward", None)


def differentiate(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    grad_outputs: Sequence[torch.Tensor],
    *,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Do what ``torch.autograd.grad(..., allow_unused=True)`` does; None for an input that takes no part.

    grad_outputs must have the shapes and dtypes of `outputs`. torch.autograd.grad compares them by way of symbolic
    shapes, which takes as long as the backward of a small function; so the engine is asked itself.

    Raises:
        CheckError: A grad_output does not fit its output.
        Exception: Whatever a backward raises.
    """
    if _BACKWARD is None:
        return torch.autograd.grad(
            outputs, inputs, grad_outputs, create_graph=create_graph, retain_graph=retain_graph, allow_unused=True
        )
    for o, g in zip(outputs, grad_outputs, strict=True):
        if g.shape != o.shape or g.dtype is not o.dtype:
            raise CheckError("grad_outputs must have the shapes and dtypes of the outputs")
    keep = create_graph if retain_graph is None else retain_graph
    results: tuple[torch.Tensor | None, ...] = _BACKWARD(
        tuple(outputs), tuple(grad_outputs), keep, create_graph, tuple(inputs), True, accumulate_grad=False
    )
    return results


def push_twice(
    call: Callable[..., Tensors], x: Sequence[torch.Tensor], u: Sequence[torch.Tensor], w: Sequence[torch.Tensor]
) -> Tensors:
    """Give D2F[u, w] by nested forward mode, one tensor an output; which torch.func alone has levels for.

    torch.func.jvp flattens nests of arguments and results several times a level, which takes longer than to push.

    Raises:
        Exception: Whatever a forward rule raises, or torch where there is none that can be nested.
    """
    count = len(x)
    # u stands still while x moves along w: with zeros of its own, or torch multiplies by an immaterial zero, whose
    # kernel is ten times slower than the product.
    still = tuple(torch.zeros_like(t) for t in u)
    levels = _levels()
    if levels is None:

        def pushed(*both: torch.Tensor) -> Tensors:
            tangents: Tensors = torch.func.jvp(call, both[:count], both[count:])[1]
            return tangents

        result: Tensors = torch.func.jvp(pushed, (*x, *u), (*w, *still))[1]
        return result
    return levels.push(
        lambda *both: levels.push(call, both[:count], both[count:], outermost=False),
        (*x, *u),
        (*w, *still),
        outermost=True,
    )


class _Levels:
    """The levels of torch.func, one of which each push through a function takes."""

    def __init__(self, module: Any) -> None:
        self.enter, self.leave, self.unwrap = module.enter_jvp_nesting, module.exit_jvp_nesting, module._unwrap_for_grad
        # The public door loads the forward rules that are written in Python.
        with fwAD.dual_level():
            fwAD.make_dual(torch.zeros(()), torch.zeros(()))

    def push(
        self,
        call: Callable[..., Tensors],
        x: Sequence[torch.Tensor],
        u: Sequence[torch.Tensor],
        *,
        outermost: bool,
    ) -> Tensors:
        """Push u through `call` at x on a level of its own; zeros for an output that does not depend on x."""
        level = self.enter()
        try:
            with fwAD._set_fwd_grad_enabled(True), fwAD.dual_level() if outermost else nullcontext():
                outputs = call(*(torch._make_dual(p, t, level=0) for p, t in zip(x, u, strict=True)))
                pairs = [torch._unpack_dual(o, level=0) for o in outputs]
                tangents = [torch.zeros_like(p) if t is None else t for p, t in pairs]
                return tuple(self.unwrap(t, level) for t in tangents)
        finally:
            self.leave()


@cache
def _levels() -> _Levels | None:
    """Give torch.func's levels, or None where this torch has them elsewhere."""
    from torch._functorch import eager_transforms

    names = ("enter_jvp_nesting", "exit_jvp_nesting", "_unwrap_for_grad")
    known = all(hasattr(eager_transforms, name) for name in names)
    known = known and all(hasattr(torch, name) for name in ("_make_dual", "_unpack_dual"))
    return _Levels(eager_transforms) if known else None
