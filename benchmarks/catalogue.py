"""torch's own op catalogue as calls that can be checked: each entry's samples, wrapper and output processing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

# A sample larger than this says nothing that a smaller one of the same entry does not.
MOST_ELEMENTS = 3000


@dataclass(frozen=True, slots=True)
class Call:
    """One call: a function of flat arguments, and the arguments.

    Attributes:
        name: The entry, with its variant.
        index: Which of the entry's samples it is.
        function: Called with the flat arguments; applies the entry's wrapper and output processing.
        arguments: Tensors and others, as they lie in the nest that the entry calls itself with.
    """

    name: str
    index: int
    function: Callable[..., Any]
    arguments: tuple[Any, ...]

    @property
    def differentiable(self) -> bool:
        """Whether any argument asks for a gradient."""
        return any(isinstance(a, torch.Tensor) and a.requires_grad for a in self.arguments)

    @property
    def elements(self) -> int:
        """How many elements its tensors have."""
        return sum(a.numel() for a in self.arguments if isinstance(a, torch.Tensor))


@cache
def _entries() -> tuple[Any, ...]:
    # The catalogue warns of deprecations of its own while it is loaded.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return tuple(op_db)


def name_of(entry: Any) -> str:
    """How torch's own tests call an entry."""
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else str(entry.name)


def entries(dtype: torch.dtype, *, only: str = "*") -> list[Any]:
    """Give the entries that claim second derivatives for a dtype on the CPU."""
    return [
        entry
        for entry in _entries()
        if entry.supports_autograd
        and entry.supports_gradgrad
        and dtype in entry.supported_backward_dtypes("cpu")
        and fnmatch(name_of(entry), only)
    ]


def calls(entry: Any, dtype: torch.dtype, most: int) -> Iterator[Call]:
    """Give at most so many of an entry's own samples, spread over all of them; none where it cannot make them.

    torch's generator is left as it was found; the samples are the same each time.
    """
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        samples = list(entry.sample_inputs("cpu", dtype, requires_grad=True))
    step = max(1, len(samples) // max(most, 1))
    for index, sample in list(enumerate(samples))[::step][:most]:
        call = _call(entry, index, sample)
        if call.differentiable and call.elements <= MOST_ELEMENTS:
            yield call


def _call(entry: Any, index: int, sample: Any) -> Call:
    arguments, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
    op = entry.get_op()

    def function(*flat: Any) -> Any:
        positional, named = pytree.tree_unflatten(list(flat), spec)
        if entry.gradcheck_wrapper is not None:
            output = entry.gradcheck_wrapper(op, *positional, **named)
        else:
            output = op(*positional, **named)
        return sample.output_process_fn_grad(output) if sample.output_process_fn_grad else output

    return Call(name_of(entry), index, function, tuple(arguments))
