"""A case in words, for people who read what failed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gradfuzz.case import Argument, Case, Element, TensorSpec, contiguous_stride

if TYPE_CHECKING:
    from gradfuzz.checker.verdict import Finding as Seen

# More elements than a line shows say nothing to a reader; the reproducer holds them all.
SHOWN = 12


def describe(case: Case) -> Iterator[str]:
    """Give the lines that say what is passed, what flows back, and what is looked at."""
    for argument in case.arguments:
        yield f"{argument.name} = {_argument(case, argument)}"
    for i, spec in enumerate(case.grad_outputs or ()):
        yield f"grad_output {i} = {'undefined' if spec is None else _tensor(case, spec)}"
    plan = case.plan
    undefined = [str(i) for i, missing in enumerate(plan.undefined) if missing]
    yield "judged: " + ", ".join(
        [
            f"order {plan.order}",
            "all checks" if plan.oracles is None else ", ".join(plan.oracles),
            *([f"grad_outputs {' '.join(undefined)} of the second backward undefined"] if undefined else []),
            f"seed {plan.seed}",
        ]
    )


def _argument(case: Case, argument: Argument) -> str:
    if argument.input is None:
        return repr(argument.value)
    return _tensor(case, case.inputs[argument.input])


def _tensor(case: Case, spec: TensorSpec) -> str:
    storage = case.storages[spec.storage]
    parts = [f"{storage.dtype}{list(spec.size)}"]
    if spec.stride != contiguous_stride(spec.size) and spec.numel > 1:
        parts.append(f"stride {spec.stride}")
    if spec.offset:
        parts.append(f"offset {spec.offset}")
    if storage.device != "cpu":
        parts.append(storage.device)
    parts += [name for name in ("conj", "neg", "requires_grad") if getattr(spec, name)]
    if not spec.leaf:
        parts.append("no leaf")
    others = [i for i, other in enumerate(case.inputs) if other is not spec and other.storage == spec.storage]
    if others:
        parts.append(f"shares memory with input {', '.join(map(str, others))}")
    return f"{', '.join(parts)}: {_elements(storage.elements, spec)}"


def _elements(elements: tuple[Element, ...], spec: TensorSpec) -> str:
    shown: list[str] = []
    for place in _places(spec):
        if len(shown) == SHOWN:
            shown.append(f"... {spec.numel} in all")
            break
        shown.append(_element(elements[place]))
    return f"[{', '.join(shown)}]"


def _places(spec: TensorSpec) -> Iterator[int]:
    """Give where in the storage the elements lie, in row-major order."""
    for number in range(spec.numel):
        place, rest = spec.offset, number
        for side, step in zip(reversed(spec.size), reversed(spec.stride), strict=True):
            place += rest % side * step
            rest //= side
        yield place


def _element(element: Element) -> str:
    if isinstance(element, tuple):
        return f"({_element(element[0])}, {_element(element[1])})"
    return f"{element:g}" if isinstance(element, float) and float(f"{element:g}") == element else str(element)


def failure(target: str, seen: Seen, case: Case | None) -> str:
    """Say what is wrong where, and in which case."""
    lines = [] if case is None else [f"  {line}" for line in describe(case)]
    return "\n".join([f"{target}: {seen}", *lines])
