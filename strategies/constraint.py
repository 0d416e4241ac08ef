"""Constraints on the values of tensors, and the transforms that reach them from all real numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.distributions import constraints
from torch.distributions.transforms import Transform, identity_transform

from gradfuzz.errors import StrategyError

Constraint = constraints.Constraint


class Symmetrize(Transform):
    """The symmetric part (A + A^T) / 2 of a square matrix; its right inverse is the identity."""

    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.symmetric

    def __eq__(self, other: object) -> bool:
        """Tell that any two are alike."""
        return isinstance(other, Symmetrize)

    def __hash__(self) -> int:
        """Hash as what is equal."""
        return hash(Symmetrize)

    def _call(self, x: torch.Tensor) -> torch.Tensor:
        return (x + x.mT) / 2

    def _inverse(self, y: torch.Tensor) -> torch.Tensor:
        return y


def constraint_of(constraint: str | Constraint) -> Constraint:
    """Give the constraint of a name in torch.distributions.constraints, or the object itself; refuse others."""
    if isinstance(constraint, str):
        found = getattr(constraints, constraint, None) if constraint in constraints.__all__ else None
        if not isinstance(found, Constraint):
            raise StrategyError(
                f"constraint={constraint!r} is no constraint without parameters in torch.distributions.constraints; "
                "give a name such as 'positive', or an object such as constraints.interval(0, 1)"
            )
    elif isinstance(constraint, Constraint):
        found = constraint
    else:
        raise StrategyError(
            f"constraint={constraint!r} is neither a name nor an object of torch.distributions.constraints"
        )
    transform(found)
    return found


def label(constraint: Constraint) -> str:
    """Name a constraint, so that two of the same label accept the same values."""
    return repr(constraint)


def is_real(constraint: Constraint) -> bool:
    """Whether every real tensor satisfies it."""
    return constraint is constraints.real or repr(constraint) == repr(constraints.real_vector)


def transform(constraint: Constraint) -> Any:
    """Give the transform from real tensors onto the constraint; refuse a constraint without one by name."""
    if is_real(constraint):
        return identity_transform
    try:
        return torch.distributions.transform_to(constraint)
    except NotImplementedError:
        if type(constraint) is type(constraints.symmetric):
            return Symmetrize()
        raise StrategyError(
            f"constraint={constraint!r} has no transform from the real numbers; register one with "
            "torch.distributions.transform_to.register, or use another, such as 'positive'"
        ) from None
