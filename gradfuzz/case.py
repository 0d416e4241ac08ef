"""Cases: one concrete call as frozen plain data, from which fresh tensors are built."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

# One element as JSON would hold it: a number; "inf", "-inf" or "nan:<hex of its bits>"; [re, im] for complex.
Real = float | int | bool | str
Element = Real | tuple[Real, Real]
# A frozen argument value: None, bool, int, float, complex, str, tuples of them, torch.dtype, enum members.
Value = Any


@dataclass(frozen=True, slots=True)
class StorageSpec:
    """The memory that one or more inputs are views of.

    Attributes:
        dtype: A dtype by its torch name, such as ``"float64"``.
        elements: The elements in memory order, each exactly representable in the dtype.
        device: Where the storage lies, such as ``"cpu"``.
    """

    dtype: str
    elements: tuple[Element, ...]
    device: str = "cpu"

    def build(self) -> torch.Tensor:
        """Make a fresh one-dimensional tensor that owns its memory."""
        from gradfuzz.element import tensor_of

        return tensor_of(self.dtype, self.elements).to(self.device)


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor as a view of a storage.

    Attributes:
        storage: Index of the storage in the case.
        size: Side lengths; ``()`` is a scalar and a zero side is allowed.
        stride: Steps in elements, one a dimension; 0 is an expanded dimension.
        offset: Index of the first element in the storage.
        conj: Whether the lazy conjugation bit is set (complex dtypes only).
        neg: Whether the lazy negation bit is set.
        requires_grad: Whether a gradient is asked for.
        leaf: Whether it is a leaf; otherwise an alias of one, with a grad_fn.
    """

    storage: int
    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int = 0
    conj: bool = False
    neg: bool = False
    requires_grad: bool = False
    leaf: bool = True

    def __post_init__(self) -> None:
        """Refuse a view that no tensor could have."""
        if len(self.size) != len(self.stride):
            raise ValueError(f"size {self.size} and stride {self.stride} differ in length; give one stride a side")
        if any(n < 0 for n in (*self.size, *self.stride, self.offset)):
            raise ValueError(f"size {self.size}, stride {self.stride}, offset {self.offset}: none may be negative")

    @property
    def numel(self) -> int:
        """The number of logical elements."""
        return math.prod(self.size)

    @property
    def extent(self) -> int:
        """How many elements of the storage must exist for this view to be inside it."""
        if self.numel == 0:
            return self.offset
        return self.offset + 1 + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True))

    def view(self, storage: torch.Tensor) -> torch.Tensor:
        """Make this view of a built storage; it shares the storage's memory."""
        import torch

        x = storage.as_strided(self.size, self.stride, self.offset)
        if self.conj:
            x = x.conj()
        if self.neg:
            x = torch._neg_view(x)
        x = x.detach().requires_grad_(self.requires_grad)
        return x if self.leaf else x.view_as(x)


def contiguous_stride(size: tuple[int, ...]) -> tuple[int, ...]:
    """The row-major strides of a shape."""
    strides: list[int] = []
    step = 1
    for n in reversed(size):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of the call, by position or by keyword: a value, or the index of an input."""

    name: str
    kind: Literal["positional", "keyword"] = "positional"
    input: int | None = None
    value: Value = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What is checked of a case: everything beside the data that decides the verdict.

    Attributes:
        order: The highest derivative looked at.
        oracles: Names of symptoms to look for; None means all.
        undefined: Which grad_outputs of the *second* backward are undefined, by input; () means none.
        seed: Seeds the directions, the checker's own grad_outputs and the random generator of the function.
    """

    order: int = 2
    oracles: tuple[str, ...] | None = None
    undefined: tuple[bool, ...] = ()
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Case:
    """One call of one target, forward and backward.

    Attributes:
        target: The canonical address of the target.
        storages: The memory of all tensors.
        inputs: The tensor inputs, as views of the storages.
        arguments: The arguments in the order of the call.
        grad_outputs: One upstream gradient an output, None for an undefined one; None altogether lets
            the checker draw generic ones.
        plan: What is checked.
    """

    target: str
    storages: tuple[StorageSpec, ...] = ()
    inputs: tuple[TensorSpec, ...] = ()
    arguments: tuple[Argument, ...] = ()
    grad_outputs: tuple[TensorSpec | None, ...] | None = None
    plan: Plan = field(default_factory=Plan)

    def __post_init__(self) -> None:
        """Refuse views outside their storage and arguments without an input."""
        for spec in (*self.inputs, *(g for g in self.grad_outputs or () if g is not None)):
            if not 0 <= spec.storage < len(self.storages):
                raise ValueError(f"storage {spec.storage} does not exist; the case has {len(self.storages)}")
            if spec.extent > len(self.storages[spec.storage].elements):
                size = len(self.storages[spec.storage].elements)
                raise ValueError(
                    f"size {spec.size}, stride {spec.stride}, offset {spec.offset} need {spec.extent} elements; "
                    f"storage {spec.storage} holds {size}"
                )
        for argument in self.arguments:
            if argument.input is not None and not 0 <= argument.input < len(self.inputs):
                raise ValueError(f"argument {argument.name!r}: input {argument.input} does not exist")

    def build(self) -> Call:
        """Make fresh tensors for one call; two calls share no memory and no graph."""
        storages = [spec.build() for spec in self.storages]
        inputs = [spec.view(storages[spec.storage]) for spec in self.inputs]
        grads = None
        if self.grad_outputs is not None:
            grads = tuple(None if g is None else g.view(storages[g.storage]) for g in self.grad_outputs)
        return Call(tuple(inputs), grads, self.arguments)


@dataclass(frozen=True, slots=True)
class Call:
    """A case made live. It owns its tensors: inputs of one case may share memory, two calls never do."""

    inputs: tuple[torch.Tensor, ...]
    grad_outputs: tuple[torch.Tensor | None, ...] | None
    layout: tuple[Argument, ...]

    def arguments(self, inputs: tuple[torch.Tensor, ...]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Give the positional and keyword arguments with `inputs` in the places of the case's own."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in self.layout:
            value = argument.value if argument.input is None else inputs[argument.input]
            if argument.kind == "keyword":
                kwargs[argument.name] = value
            else:
                args.append(value)
        return tuple(args), kwargs
