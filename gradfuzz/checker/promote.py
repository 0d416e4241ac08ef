"""Running a function in double that holds constants of a lower dtype: operands are promoted where dtypes meet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

HIGHER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
DOUBLES = {torch.float64, torch.complex128}
# These say what a tensor is or write where it lies; they compute nothing from two tensors.
LEFT_ALONE = {"__get__", "__set__", "copy_", "set_", "requires_grad_", "__repr__"}


class Promoting(TorchFunctionMode):
    """Turns every tensor of lower precision into double where it meets a double one, in forward and in backward.

    A module with float32 weights refuses double inputs; under this mode it computes what it would with its weights
    converted, which double represents exactly. Calls without a double operand are left as they are.
    """

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call `func` with promoted operands."""
        named = dict(kwargs or {})
        if getattr(func, "__name__", "") in LEFT_ALONE:
            return func(*args, **named)
        leaves, spec = pytree.tree_flatten((args, named))
        if any(isinstance(x, torch.Tensor) and x.dtype in DOUBLES for x in leaves) and any(map(_low, leaves)):
            leaves = [x.to(HIGHER[x.dtype]) if _low(x) else x for x in leaves]
            args, named = pytree.tree_unflatten(leaves, spec)
        return func(*args, **named)


def _low(x: object) -> bool:
    return isinstance(x, torch.Tensor) and x.dtype in HIGHER
