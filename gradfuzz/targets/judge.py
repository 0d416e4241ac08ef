"""The judge: builds a case, calls its target through the constraints, and asks the checker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from gradfuzz.case import Call, Case
from gradfuzz.checker import Verdict, check
from gradfuzz.strategies.case import constraint_of_argument
from gradfuzz.strategies.constraint import transform
from gradfuzz.targets.target import Target


class _Through:
    """A constrained input reached from all real numbers: x(z) = x0 + (T(z) - T(z0)).

    At z0 it is x0 to the bit; every step of a difference quotient in z stays within the constraint.
    """

    def __init__(self, to: Callable[[torch.Tensor], torch.Tensor], x0: torch.Tensor, z0: torch.Tensor) -> None:
        self.to = to
        self.x0 = x0.detach()
        self.z0 = z0

    def __call__(self, z: torch.Tensor) -> torch.Tensor:
        base = self.z0.to(z.dtype)
        return self.x0.to(z.dtype) + (self.to(z) - self.to(base))


def _through(constraint: Any, x0: torch.Tensor) -> _Through | None:
    """Give the way to a constrained value, or None where it lies on the edge, which no finite z reaches."""
    to = transform(constraint)
    with torch.no_grad():
        try:
            z0 = to.inv(x0)
        except (RuntimeError, ValueError):  # rounding has moved it out of the domain, or the dtype has no kernel
            return None
        if not bool(torch.isfinite(z0).all() and torch.isfinite(to(z0)).all()):
            return None
    return _Through(to, x0, z0.detach().clone())


def _ways(target: Target, case: Case, call: Call) -> dict[int, _Through]:
    """Give the way to each constrained input, by its index."""
    constraints = {name: constraint_of_argument(strategy) for name, strategy in target.parameters.items()}
    ways: dict[int, _Through] = {}
    for argument in case.arguments:
        i = argument.input
        constraint = constraints.get(argument.name) or constraints.get(f"*{argument.name}")
        if i is None or i in ways or constraint is None or not call.inputs[i].requires_grad:
            continue
        if (way := _through(constraint, call.inputs[i])) is not None:
            ways[i] = way
    return ways


def judge(target: Target, case: Case, *, explain: bool = True) -> Verdict:
    """Check one case of a target; `explain` says whether findings tell what kind of mistake they look like.

    A constrained argument is checked through the transform to its constraint, so the derivative judged is that with
    respect to the unconstrained value; on the edge of the constraint the plain function is checked.
    """
    call = case.build()
    ways = _ways(target, case, call)
    inputs = tuple(ways[i].z0.clone().requires_grad_() if i in ways else x for i, x in enumerate(call.inputs))

    def function(*tensors: torch.Tensor) -> Any:
        reached = tuple(ways[i](x) if i in ways else x for i, x in enumerate(tensors))
        args, kwargs = call.arguments(reached)
        return target.fn(*args, **kwargs)

    plan = case.plan
    return check(
        function,
        inputs,
        call.grad_outputs,
        order=plan.order,
        oracles=plan.oracles if plan.oracles is not None else target.checks,
        seed=plan.seed,
        # The case counts all its inputs, the checker those that ask for a gradient.
        undefined=tuple(u for u, x in zip(plan.undefined, inputs, strict=False) if x.requires_grad),
        stochastic=target.stochastic,
        thorough=False,
        explain=explain,
        detached=tuple(a.input for a in case.arguments if a.input is not None and a.name in target.detached),
    )
