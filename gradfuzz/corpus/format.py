"""The corpus file format: a reproducer as JSON text, and back."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from gradfuzz.case import Argument, Case, Plan, StorageSpec, TensorSpec
from gradfuzz.checker.verdict import Symptom
from gradfuzz.corpus import side
from gradfuzz.corpus.field import Field, one_line
from gradfuzz.corpus.number import DTYPES, read_element, write_element
from gradfuzz.corpus.reproducer import EXPECTATIONS, Expect, Found, Observed, Reproducer
from gradfuzz.corpus.text import MOST_BYTES, Rows, canonical, lay_out, parse
from gradfuzz.corpus.value import MOST_ITEMS, read_value, write_value
from gradfuzz.element import COMPLEX, FLOATS
from gradfuzz.errors import CorpusError

if TYPE_CHECKING:
    from gradfuzz.case import Element

FORMAT = "gradfuzz-corpus"
VERSION = 1

# What a case may ask of memory: 32 MiB of float64 a tensor. A checker needs some dozen copies.
MOST_ELEMENTS = 2**22
# ... and all tensors of a case together.
MOST_ELEMENTS_TOGETHER = 2**24
# torch's own limit on the dimensions of an iterator.
MOST_DIMENSIONS = 64
MOST_TENSORS = 1024
MOST_ORDER = 3
# Seeds are what torch's generator takes.
LEAST_SEED, MOST_SEED = -(2**63), 2**64 - 1

KINDS = ("positional", "keyword")
SYMPTOMS = tuple(symptom.value for symptom in Symptom)
DEVICE = re.compile(r"(cpu|cuda|mps|xpu|hpu|npu|mtia)(:\d{1,3})?")
# A key left out of an input has this value.
VIEW_DEFAULTS: dict[str, object] = {"offset": 0, "conj": False, "neg": False, "requires_grad": False, "leaf": True}


def _write_storage(storage: StorageSpec, width: int, sides: dict[str, bytes] | None) -> dict[str, object]:
    record: dict[str, object] = {"dtype": storage.dtype, "device": storage.device}
    if sides is not None and len(storage.elements) > side.SIDE_ELEMENTS:
        data = side.pack(storage)
        sides[side.name_of(data)] = data
        return {**record, "count": len(storage.elements), "file": side.name_of(data)}
    elements = [write_element(element, storage.dtype) for element in storage.elements]
    return {**record, "elements": Rows(elements, width)}


def _row_width(case: Case, index: int) -> int:
    """How many elements of a storage make a row: the memory that the innermost dimension of its first view spans."""
    for view in (*case.inputs, *(case.grad_outputs or ())):
        if view is not None and view.storage == index:
            rows = [s for n, s in zip(view.size, view.stride, strict=True) if n > 1 and s > 1]
            if rows:
                return min(rows)
    return max(1, len(case.storages[index].elements))


def _write_view(view: TensorSpec | None) -> dict[str, object] | None:
    if view is None:
        return None
    record: dict[str, object] = {"storage": view.storage, "size": list(view.size), "stride": list(view.stride)}
    options = {name: getattr(view, name) for name in VIEW_DEFAULTS}
    return record | {name: value for name, value in options.items() if value != VIEW_DEFAULTS[name]}


def _write_argument(argument: Argument) -> dict[str, object]:
    record: dict[str, object] = {"name": argument.name, "kind": argument.kind}
    if argument.input is not None:
        return {**record, "input": argument.input}
    try:
        return {**record, "value": write_value(argument.value)}
    except ValueError as error:
        raise CorpusError(f"argument {argument.name!r}: {error}") from None


def write_case(case: Case, *, sides: dict[str, bytes] | None = None) -> dict[str, object]:
    """Give a case as a JSON record; where `sides` is given, large storages are put there as bytes by name."""
    grads = case.grad_outputs
    plan = case.plan
    return {
        "storages": [_write_storage(s, _row_width(case, i), sides) for i, s in enumerate(case.storages)],
        "inputs": [_write_view(view) for view in case.inputs],
        "arguments": [_write_argument(argument) for argument in case.arguments],
        "grad_outputs": None if grads is None else [_write_view(view) for view in grads],
        "plan": {
            "order": plan.order,
            "oracles": None if plan.oracles is None else list(plan.oracles),
            "undefined": list(plan.undefined),
            "seed": plan.seed,
        },
    }


def write(reproducer: Reproducer, *, sides: dict[str, bytes] | None = None) -> dict[str, object]:
    """Give a reproducer as a JSON record in the order of the file."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "target": reproducer.target,
        "signature": reproducer.signature,
        "symptom": reproducer.symptom.value,
        "note": reproducer.note,
        "expect": reproducer.expect,
        "case": write_case(reproducer.case, sides=sides),
        "observed": asdict(reproducer.observed),
        "found": asdict(reproducer.found),
    }


def dumps(reproducer: Reproducer) -> str:
    """Give the text of a corpus file, with all elements in it; `loads` gives the reproducer again."""
    return lay_out(write(reproducer))


def content_hash(reproducer: Reproducer) -> str:
    """Give the SHA-256 of what makes a reproducer this one: its signature and its case."""
    content = {"signature": reproducer.signature, "case": write_case(reproducer.case, sides={})}
    return hashlib.sha256(canonical(content).encode()).hexdigest()


def _read_elements(field: Field, dtype: str) -> tuple[Element, ...]:
    elements: list[Element] = []
    for i, value in enumerate(field.values(most=MOST_ELEMENTS)):
        try:
            elements.append(read_element(value, dtype))
        except ValueError as error:
            raise Field(field.source, f"{field.path}[{i}]", value).wrong(str(error)) from None
    return tuple(elements)


def _read_storage(field: Field, folder: Path | None) -> StorageSpec:
    fields = field.record(("dtype",), ("device", "elements", "count", "file"))
    dtype = fields["dtype"].name(DTYPES)
    device = fields["device"].text() if "device" in fields else "cpu"
    if not DEVICE.fullmatch(device):
        raise fields["device"].wrong("is unknown; a device is such as cpu, cuda or cuda:1")
    if "elements" in fields:
        field.record(("dtype", "elements"), ("device",))
        return StorageSpec(dtype, _read_elements(fields["elements"], dtype), device)
    fields = field.record(("dtype", "count", "file"), ("device",))
    count = fields["count"].integer(0, MOST_ELEMENTS)
    file = fields["file"]
    if not side.NAME.fullmatch(file.text()):
        raise file.wrong("must be 64 lower-case hex digits and .bin")
    if folder is None:
        raise file.wrong("is a side file, and a text alone has none; load it from its folder")
    try:
        return StorageSpec(
            dtype, side.unpack(side.read(folder / file.text(), count * side.itemsize(dtype)), dtype), device
        )
    except ValueError as error:
        raise file.wrong(str(error)) from None


def _read_sides(field: Field) -> tuple[int, ...]:
    return tuple(item.integer(0, MOST_ELEMENTS) for item in field.items(most=MOST_DIMENSIONS))


def _read_view(field: Field, storages: tuple[StorageSpec, ...]) -> TensorSpec:
    fields = field.record(("storage", "size", "stride"), VIEW_DEFAULTS)
    if not storages:
        raise field.wrong("the case has no storage")
    storage = storages[fields["storage"].integer(0, len(storages) - 1)]
    size, stride = _read_sides(fields["size"]), _read_sides(fields["stride"])
    if len(size) != len(stride):
        raise fields["stride"].wrong(f"must have a stride for each of the {len(size)} sides of size")
    # An empty side does not excuse the others: torch multiplies them too.
    if math.prod(max(n, 1) for n in size) > MOST_ELEMENTS:
        raise fields["size"].wrong(f"a tensor has at most {MOST_ELEMENTS} elements, expanded ones included")
    view = TensorSpec(
        storage=fields["storage"].integer(0, len(storages) - 1),
        size=size,
        stride=stride,
        offset=fields["offset"].integer(0, MOST_ELEMENTS) if "offset" in fields else 0,
        **{name: fields[name].boolean() for name in VIEW_DEFAULTS if name != "offset" and name in fields},
    )
    if view.extent > len(storage.elements):
        raise fields["stride"].wrong(
            f"size {list(size)} and offset {view.offset} need {view.extent} elements; "
            f"the storage has {len(storage.elements)}"
        )
    if view.conj and storage.dtype not in COMPLEX:
        raise fields["conj"].wrong(f"only complex dtypes have a conjugation bit; the storage is {storage.dtype}")
    for name in ("neg", "requires_grad"):
        if getattr(view, name) and storage.dtype not in (*FLOATS, *COMPLEX):
            raise fields[name].wrong(f"needs a floating or complex dtype; the storage is {storage.dtype}")
    return view


def _read_argument(field: Field, inputs: int) -> Argument:
    fields = field.record(("name", "kind"), ("input", "value"))
    if ("input" in fields) == ("value" in fields):
        raise field.wrong('must have either "input" or "value"')
    return Argument(
        name=fields["name"].text(),
        kind=cast("Literal['positional', 'keyword']", fields["kind"].name(KINDS)),
        input=fields["input"].integer(0, inputs - 1) if "input" in fields else None,
        value=read_value(fields["value"]) if "value" in fields else None,
    )


def _read_plan(field: Field) -> Plan:
    fields = field.record(("order", "oracles", "undefined", "seed"))
    oracles = fields["oracles"]
    names = None
    if oracles.value is not None:
        names = tuple(item.name(SYMPTOMS) for item in oracles.items(most=len(SYMPTOMS)))
    return Plan(
        order=fields["order"].integer(0, MOST_ORDER),
        oracles=names,
        undefined=tuple(item.boolean() for item in fields["undefined"].items(most=MOST_TENSORS)),
        seed=fields["seed"].integer(LEAST_SEED, MOST_SEED),
    )


def _read_case(field: Field, target: str, folder: Path | None) -> Case:
    fields = field.record(("storages", "inputs", "arguments", "grad_outputs", "plan"))
    storages = tuple(_read_storage(item, folder) for item in fields["storages"].items(most=MOST_TENSORS))
    inputs = tuple(_read_view(item, storages) for item in fields["inputs"].items(most=MOST_TENSORS))
    arguments = tuple(_read_argument(item, len(inputs)) for item in fields["arguments"].items(most=MOST_ITEMS))
    grads = fields["grad_outputs"]
    grad_outputs = None
    if grads.value is not None:
        grad_outputs = tuple(
            None if item.value is None else _read_view(item, storages) for item in grads.items(most=MOST_TENSORS)
        )
    views = (*inputs, *(view for view in grad_outputs or () if view is not None))
    together = sum(view.numel for view in views) + sum(len(storage.elements) for storage in storages)
    if together > MOST_ELEMENTS_TOGETHER:
        raise CorpusError(
            f"{field.source}: {field.path}: {together} elements together; at most {MOST_ELEMENTS_TOGETHER} are allowed"
        )
    return Case(target, storages, inputs, arguments, grad_outputs, _read_plan(fields["plan"]))


def _read_texts(fields: dict[str, Field], names: Collection[str]) -> dict[str, str]:
    return {name: fields[name].text() for name in names if name in fields}


def _read_whole(fields: dict[str, Field], name: str, low: int, high: int) -> int | None:
    if name not in fields or fields[name].value is None:
        return None
    return fields[name].integer(low, high)


def _read_observed(field: Field) -> Observed:
    texts = ("where", "got", "want", "mode", "element", "explanation", "exception", "reliability")
    fields = field.record(optional=("order", *texts))
    return Observed(order=_read_whole(fields, "order", 0, MOST_ORDER), **_read_texts(fields, texts))


def _read_found(field: Field) -> Found:
    texts = ("torch", "gradfuzz", "date")
    fields = field.record(optional=("seed", "round", *texts))
    return Found(
        seed=_read_whole(fields, "seed", LEAST_SEED, MOST_SEED),
        round=_read_whole(fields, "round", 0, MOST_SEED),
        **_read_texts(fields, texts),
    )


def read(document: Field, *, folder: Path | None = None) -> Reproducer:
    """Give the reproducer of a JSON document, every part of it validated; side files lie in `folder`."""
    head = document.value if isinstance(document.value, dict) else {}
    # Format and version come first: another version's keys would be called unknown one by one.
    for key, known in (("format", FORMAT), ("version", VERSION)):
        if key in head and (head[key] != known or isinstance(head[key], bool)):
            remedy = f"this gradfuzz reads {known!r} only" + ("; a newer one may read it" if key == "version" else "")
            raise Field(document.source, key, head[key]).wrong(f"{key} is unknown; {remedy}")
    fields = document.record(
        ("format", "version", "target", "signature", "symptom", "case"), ("note", "expect", "observed", "found")
    )
    target = fields["target"].text()
    symptom = Symptom(fields["symptom"].name(SYMPTOMS))
    expect = fields["expect"].name(EXPECTATIONS) if "expect" in fields else "pass"
    case = _read_case(fields["case"], target, folder)
    try:
        return Reproducer(
            target=target,
            signature=fields["signature"].text(),
            symptom=symptom,
            case=case,
            note=fields["note"].text() if "note" in fields else "",
            expect=cast("Expect", expect),
            observed=_read_observed(fields["observed"]) if "observed" in fields else Observed(),
            found=_read_found(fields["found"]) if "found" in fields else Found(),
        )
    except CorpusError:
        raise
    except ValueError as error:
        raise CorpusError(one_line(f"{document.source}: {error}")) from None


def loads(text: str, *, source: str = "<text>", folder: Path | None = None) -> Reproducer:
    """Give the reproducer of a corpus file's text; a CorpusError of one line starts with `source`."""
    if len(text) > MOST_BYTES:
        raise CorpusError(f"{source}: larger than {MOST_BYTES} bytes")
    return read(parse(text, source), folder=folder)
