"""What one run of the function gives, as plain numbers: for those who compare two runs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gradfuzz.checker.evaluation import First, Second
from gradfuzz.checker.tensors import Array, flat


@dataclass(frozen=True, slots=True)
class Answers:
    """What one run of the function gives, as plain numbers.

    Attributes:
        values: F; None where it is not to be compared.
        gradients: G.
        hessian_u: d<G, u>/dx; None where no second derivative is looked at.
        jacobian_u: d<G, u>/dv; None likewise.
        largest_term: The largest number that an element of G was summed from, where the check itself did that.
    """

    values: Array | None
    gradients: Array
    hessian_u: Array | None = None
    jacobian_u: Array | None = None
    largest_term: float = 0.0

    @classmethod
    def of(cls, first: First) -> Answers:
        """Read what a backward, or a double one, gave."""
        second = first if isinstance(first, Second) else None
        return cls(
            flat(first.values),
            flat(first.gradients),
            flat(second.hessian_u) if second else None,
            flat(second.jacobian_u) if second else None,
        )

    @property
    def parts(self) -> tuple[Array | None, ...]:
        """F, G and the two parts of the second derivative."""
        return self.values, self.gradients, self.hessian_u, self.jacobian_u

    @property
    def finite(self) -> bool:
        """Whether every number is."""
        return all(bool(np.isfinite(part).all()) for part in self.parts if part is not None)
