"""Reproducers as people read them: what is wrong, and the call that shows it, in Python."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

from gradfuzz.case import Argument, StorageSpec, TensorSpec, contiguous_stride
from gradfuzz.corpus.field import one_line
from gradfuzz.corpus.number import write_element
from gradfuzz.corpus.reproducer import Reproducer
from gradfuzz.corpus.store import place_of

# More elements than these fill the screen and tell a reader nothing.
MOST_SHOWN = 256


def _real(value: object) -> str:
    if isinstance(value, str):
        return 'float("nan")' if value.startswith("nan") else f'float("{value}")'
    return repr(value)


def _element(storage: StorageSpec, index: int) -> str:
    element = write_element(storage.elements[index], storage.dtype)
    if isinstance(element, list):
        return f"complex({', '.join(map(_real, element))})"
    return _real(element)


def _nested(storage: StorageSpec, size: tuple[int, ...], start: int = 0) -> str:
    if not size:
        return _element(storage, start)
    step = 1
    for n in size[1:]:
        step *= n
    return f"[{', '.join(_nested(storage, size[1:], start + i * step) for i in range(size[0]))}]"


def _tensor(storage: StorageSpec, size: tuple[int, ...], *, requires_grad: bool = False) -> str:
    options = f"dtype=torch.{storage.dtype}"
    if storage.device != "cpu":
        options += f', device="{storage.device}"'
    if requires_grad:
        options += ", requires_grad=True"
    count = len(storage.elements)
    if count > MOST_SHOWN:
        return f"torch.tensor(..., {options})  # {count} elements, in the file"
    if 0 in size:
        return f"torch.empty({size}, {options})"
    return f"torch.tensor({_nested(storage, size)}, {options})"


def _tuple(texts: list[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _value(value: object) -> str:
    if isinstance(value, float) and value - value != 0:  # inf and nan have no literal
        return f'float("{value}")'
    if isinstance(value, tuple):
        return _tuple([_value(item) for item in value])
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    return repr(value)


@dataclass(slots=True)
class _Script:
    """The Python lines that make the tensors of a case."""

    reproducer: Reproducer
    lines: list[str]
    made: set[int]

    def _is_plain(self, view: TensorSpec) -> bool:
        """Whether a view is its whole storage and shares it with nothing: then torch.tensor says it all."""
        case = self.reproducer.case
        views = (*case.inputs, *(g for g in case.grad_outputs or () if g is not None))
        return (
            sum(other.storage == view.storage for other in views) == 1
            and view.stride == contiguous_stride(view.size)
            and view.numel == len(case.storages[view.storage].elements)
            and (view.offset, view.conj, view.neg, view.leaf) == (0, False, False, True)
        )

    def expression(self, view: TensorSpec) -> str:
        """Give the Python of a tensor; the line of its storage is added once where it needs one."""
        storage = self.reproducer.case.storages[view.storage]
        if self._is_plain(view):
            return _tensor(storage, view.size, requires_grad=view.requires_grad)
        name = f"storage_{view.storage}"
        if view.storage not in self.made:
            self.made.add(view.storage)
            self.lines.append(f"{name} = {_tensor(storage, (len(storage.elements),))}")
        text = f"{name}.as_strided({view.size}, {view.stride}, {view.offset})"
        text += ".conj()" if view.conj else ""
        text = f"torch._neg_view({text})" if view.neg else text
        text += ".detach().requires_grad_()" if view.requires_grad else ".detach()"
        return text if view.leaf else f"{text}.view({view.size})  # no leaf: an alias of one"


def _callee(address: str) -> tuple[str, str]:
    """Give the line that brings a target into a script, and the name to call it by."""
    if "::" in address:
        file, _, name = address.partition("::")
        return f"# {name} is in {file}", name
    module, _, name = address.rpartition(":")
    if module == "torch" or module.startswith("torch."):
        return "", f"{module}.{name}"
    return (f"from {module} import {name}" if module else f"# {name} is the target"), name


def _input_names(arguments: tuple[Argument, ...], inputs: int) -> list[str]:
    names = [f"input_{i}" for i in range(inputs)]
    for argument in arguments:
        if argument.input is not None and argument.name.isidentifier() and argument.name not in names:
            names[argument.input] = argument.name
    return names


def script(reproducer: Reproducer) -> str:
    """Give the case as Python: the tensors, the call, and the derivative that is looked at."""
    case = reproducer.case
    building = _Script(reproducer, ["import torch"], set())
    lines = building.lines
    bring, name = _callee(reproducer.target)
    if bring:
        lines.append(one_line(bring))
    lines.append("")
    names = _input_names(case.arguments, len(case.inputs))
    for input_name, view in zip(names, case.inputs, strict=True):
        lines.append(f"{input_name} = {building.expression(view)}")
    if case.grad_outputs is not None:
        grads = [None if view is None else building.expression(view) for view in case.grad_outputs]
        for i, grad in enumerate(grads):
            lines.append(f"grad_output_{i} = {grad}" + ("  # undefined" if grad is None else ""))
    arguments = []
    for argument in case.arguments:
        text = names[argument.input] if argument.input is not None else one_line(_value(argument.value))
        arguments.append(f"{argument.name}={text}" if argument.kind == "keyword" else text)
    lines.append(f"outputs = {one_line(name)}({', '.join(arguments)})")
    return "\n".join([*lines, *_derivatives(reproducer, names)])


def _derivatives(reproducer: Reproducer, names: list[str]) -> list[str]:
    case = reproducer.case
    wanted = [name for name, view in zip(names, case.inputs, strict=True) if view.requires_grad]
    if not wanted:
        return []
    if case.grad_outputs is None:
        given = "grad_outputs"
        lines = [f"# grad_outputs: any that are not zero; the checker draws them from seed {case.plan.seed}"]
    else:
        given, lines = _tuple([f"grad_output_{i}" for i in range(len(case.grad_outputs))]), []
    lines.append(f"gradients = torch.autograd.grad(outputs, {_tuple(wanted)}, {given}, create_graph=True)")
    if (reproducer.observed.order or 0) > 1:
        lines.append("# the defect is in the derivative of these gradients")
    return lines


def describe(reproducer: Reproducer, *, path: Path | str | None = None) -> str:
    """Say what a reproducer shows, to someone who never saw this tool.

    Args:
        reproducer: What to describe.
        path: Its file, for the command that replays it; by default where `save` puts it below ``corpus``.
    """
    finding = reproducer.observed.finding(reproducer.symptom)
    lines = [f"{reproducer.target}", f"{reproducer.symptom.value}: {reproducer.symptom.meaning}", ""]
    if reproducer.observed.got or reproducer.observed.want:
        lines.append(str(finding).removeprefix(f"{reproducer.symptom.value}: "))
    if reproducer.is_annotated:
        lines.append(f"note: {reproducer.note}")
    if reproducer.expect == "fail":
        lines.append("accepted for now: replay expects it to fail")
    if versions := _versions(reproducer):
        lines.append(versions)
    command = f"gradfuzz replay {shlex.quote(str(path or Path('corpus') / place_of(reproducer)))}"
    body = [f"    {line}" if line else "" for line in script(reproducer).split("\n")]
    return "\n".join([*(one_line(line) for line in lines), "", *body, "", f"replay: {one_line(command)}"])


def _versions(reproducer: Reproducer) -> str:
    found = reproducer.found
    parts = [
        f"on {found.date}" if found.date else "",
        f"with torch {found.torch}" if found.torch else "",
        f"gradfuzz {found.gradfuzz}" if found.gradfuzz else "",
        f"seed {found.seed}" if found.seed is not None else "",
        f"confirmed {reproducer.observed.reliability}" if reproducer.observed.reliability else "",
    ]
    text = ", ".join(part for part in parts if part)
    return f"found {text}" if text else ""
