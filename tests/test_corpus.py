"""The corpus: a reproducer survives the file to the bit, and a damaged file is refused on one line."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradfuzz.case import Argument, Case, Plan, StorageSpec, TensorSpec, contiguous_stride
from gradfuzz.checker.verdict import Finding, Symptom
from gradfuzz.corpus import (
    Found,
    Observed,
    Reproducer,
    accept,
    content_hash,
    describe,
    dumps,
    files,
    load,
    loads,
    save,
    smallest,
)
from gradfuzz.corpus.description import script
from gradfuzz.corpus.number import DTYPES
from gradfuzz.corpus.side import SIDE_ELEMENTS
from gradfuzz.corpus.store import folder_name
from gradfuzz.corpus.text import MOST_BYTES
from gradfuzz.element import COMPLEX, FLOATS, elements_of
from gradfuzz.errors import CorpusError

TARGET = "examples/ops.py::softclip"
FINDING = Finding(
    Symptom.WRONG_GRADIENT,
    "input 0",
    "2.001",
    "2 +- 2e-10",
    order=1,
    mode="rev",
    element="(0, 1)",
    explanation="a factor",
)


def case_of(*elements, dtype="float64", target=TARGET, size=None, **fields):
    """One contiguous tensor of these elements that asks for a gradient, as the only argument."""
    size = (len(elements),) if size is None else size
    wanted = dtype in (*FLOATS, *COMPLEX)
    view = TensorSpec(0, size, contiguous_stride(size), requires_grad=wanted)
    return Case(target, (StorageSpec(dtype, elements),), (view,), (Argument("x", input=0),), **fields)


def reproducer_of(case, finding=FINDING):
    return dataclasses.replace(
        Reproducer.of(finding, case, seed=0, round=3), found=Found(0, 3, "2.13.0", "0.1.0", "2026-01-31")
    )


REPRODUCER = reproducer_of(case_of(1.0, 0.1, 2.5, -0.0, size=(2, 2)))


# --- the round trip -------------------------------------------------------------------------------


def nans(dtype):
    info = torch.finfo(getattr(torch, dtype))
    stored = 1 - math.frexp(info.eps)[1] + 0
    exponent = ((1 << info.bits - 1 - stored) - 1) << stored
    payloads = st.integers(1, (1 << stored) - 1)
    signs = st.sampled_from([0, 1 << info.bits - 1])
    return st.builds(lambda p, s: f"nan:{exponent | p | s:0{info.bits // 4}x}", payloads, signs)


def reals(dtype):
    if dtype == "bool":
        return st.booleans()
    if dtype not in FLOATS:
        info = torch.iinfo(getattr(torch, dtype))
        return st.integers(info.min, info.max)
    info = torch.finfo(getattr(torch, dtype))
    odd = [0.0, -0.0, info.max, -info.max, info.tiny, info.tiny * info.eps, -info.tiny * info.eps, info.eps, 0.1]

    def into_dtype(x):
        return torch.tensor(x, dtype=torch.float64).to(getattr(torch, dtype)).double().item()

    finite = st.floats(-info.max, info.max) | st.floats(-10, 10)
    return (finite | st.sampled_from(odd)).map(into_dtype) | st.sampled_from(["inf", "-inf"]) | nans(dtype)


def elements(dtype):
    if dtype in COMPLEX:
        part = reals(COMPLEX[dtype])
        return st.tuples(part, part)
    return reals(dtype)


@st.composite
def views(draw, storages):
    """Any view that fits its storage: contiguous, strided, expanded, overlapping, empty, conjugated."""
    index = draw(st.integers(0, len(storages) - 1))
    storage = storages[index]
    offset = draw(st.integers(0, len(storage.elements)))
    left = len(storage.elements) - offset - 1
    size, stride = [], []
    for _ in range(draw(st.integers(0, 3))):
        step = draw(st.integers(0, 3))
        side = draw(st.integers(0, 3 if step == 0 else min(3, max(left, 0) // step + 1)))
        size.append(side)
        stride.append(step)
        left -= max(side - 1, 0) * step
    if left < 0 and 0 not in size:
        size, stride = [0, *size], [1, *stride]
    floating = storage.dtype in (*FLOATS, *COMPLEX)
    return TensorSpec(
        index,
        tuple(size),
        tuple(stride),
        offset,
        conj=storage.dtype in COMPLEX and draw(st.booleans()),
        neg=floating and storage.dtype != "complex32" and draw(st.booleans()),  # torch cannot read conj with neg there
        requires_grad=floating and draw(st.booleans()),
        leaf=draw(st.booleans()),
    )


floats = st.floats(allow_nan=False)
plain = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | floats
    | st.complex_numbers(allow_nan=False)
    | st.text()
    | st.sampled_from([torch.float32, torch.int8, torch.channels_last, torch.strided, torch.sparse_coo])
)
values = st.recursive(
    plain, lambda inner: st.lists(inner, max_size=3).map(tuple) | st.lists(inner, max_size=2), max_leaves=5
)


@st.composite
def reproducers(draw):
    storage = st.sampled_from(DTYPES).flatmap(
        lambda dtype: st.lists(elements(dtype), max_size=6).map(lambda held: StorageSpec(dtype, tuple(held)))
    )
    storages = tuple(draw(st.lists(storage, min_size=1, max_size=3)))
    inputs = tuple(draw(st.lists(views(storages), max_size=3)))
    argument = st.builds(Argument, st.text(), st.sampled_from(["positional", "keyword"]), st.none(), values)
    if inputs:
        tensor = st.builds(
            Argument, st.text(), st.sampled_from(["positional", "keyword"]), st.integers(0, len(inputs) - 1)
        )
        argument = argument | tensor
    plan = st.builds(
        Plan,
        st.integers(1, 2),
        st.none() | st.lists(st.sampled_from([s.value for s in Symptom]), max_size=2).map(tuple),
        st.lists(st.booleans(), max_size=3).map(tuple),
        st.integers(0, 2**64 - 1),
    )
    grad_outputs = st.none() | st.lists(st.none() | views(storages), max_size=2).map(tuple)
    case = Case(TARGET, storages, inputs, tuple(draw(st.lists(argument, max_size=3))), draw(grad_outputs), draw(plan))
    note = draw(st.text())
    return dataclasses.replace(reproducer_of(case), note=note, expect=draw(st.sampled_from(["pass", "fail"])))


def bits(x):
    """What a tensor is made of: everything a test of equality would overlook."""
    held = None if x is None else elements_of(x.detach().reshape(-1))
    return x if x is None else (x.dtype, x.shape, x.stride(), x.is_conj(), x.is_neg(), x.requires_grad, x.is_leaf, held)


@settings(max_examples=300, deadline=None)
@given(reproducers())
def test_a_reproducer_survives_the_file_exactly(reproducer):
    text = dumps(reproducer)
    again = loads(text)
    assert again == reproducer
    assert dumps(again) == text
    assert content_hash(again) == content_hash(reproducer)
    before, after = reproducer.case.build(), again.case.build()
    assert [bits(x) for x in after.inputs] == [bits(x) for x in before.inputs]
    assert [bits(x) for x in after.grad_outputs or ()] == [bits(x) for x in before.grad_outputs or ()]


def test_views_of_one_storage_share_memory_after_loading():
    storage = StorageSpec("float64", (1.0, 2.0, 3.0))
    case = Case(TARGET, (storage,), (TensorSpec(0, (2,), (1,)), TensorSpec(0, (2,), (1,), 1)))
    left, right = loads(dumps(reproducer_of(case))).case.build().inputs
    left[1] = 7.0
    assert right[0] == 7.0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_number_of_a_two_byte_dtype_survives(dtype):
    every = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(getattr(torch, dtype))
    case = case_of(*elements_of(every), dtype=dtype)
    again = loads(dumps(reproducer_of(case))).case
    assert again == case
    assert torch.equal(again.build().inputs[0].detach().view(torch.int16), every.view(torch.int16))


@pytest.mark.parametrize(
    ("dtype", "value", "text"),
    [
        ("float64", 0.1, "0.1"),
        ("float32", struct.unpack("f", struct.pack("f", 0.1))[0], "0.1"),
        ("bfloat16", 0.10009765625, "0.1"),
        ("float16", 0.0999755859375, "0.1"),
        ("float16", 65504.0, "65500.0"),
        ("float32", 3.4028234663852886e38, "3.4028235e+38"),
        ("float32", 1.401298464324817e-45, "1e-45"),
        ("float64", 5e-324, "5e-324"),
        ("float64", 1.0, "1.0"),
        ("float64", -0.0, "-0.0"),
        ("float64", 1e22, "1e+22"),
        ("float32", "nan:ffc00001", '"nan:ffc00001"'),
        ("complex64", (0.5, "-inf"), '[0.5, "-inf"]'),
        ("int8", -128, "-128"),
        ("bool", True, "true"),
    ],
)
def test_a_number_is_written_in_the_digits_its_dtype_needs(dtype, value, text):
    assert f'"elements": [{text}]' in dumps(reproducer_of(case_of(value, dtype=dtype)))


def test_a_nan_among_the_arguments_keeps_its_payload():
    (nan,) = struct.unpack(">d", bytes.fromhex("7ff8000000000abc"))
    text = dumps(reproducer_of(Case(TARGET, arguments=(Argument("x", value=nan),))))
    assert '"value": {"float": "nan:7ff8000000000abc"}' in text
    assert dumps(loads(text)) == text


def test_a_file_reads_well():
    assert dumps(REPRODUCER) == FILE


FILE = """\
{
  "format": "gradfuzz-corpus",
  "version": 1,
  "target": "examples/ops.py::softclip",
  "signature": "examples/ops.py::softclip|wrong-gradient|1|rev|input 0|",
  "symptom": "wrong-gradient",
  "note": "wrong-gradient: first derivative (rev), input 0, element (0, 1): got 2.001, want 2 +- 2e-10 - a factor",
  "expect": "pass",
  "case": {
    "storages": [
      {
        "dtype": "float64",
        "device": "cpu",
        "elements": [
          1.0, 0.1,
          2.5, -0.0
        ]
      }
    ],
    "inputs": [
      {"storage": 0, "size": [2, 2], "stride": [2, 1], "requires_grad": true}
    ],
    "arguments": [
      {"name": "x", "kind": "positional", "input": 0}
    ],
    "grad_outputs": null,
    "plan": {"order": 2, "oracles": null, "undefined": [], "seed": 0}
  },
  "observed": {
    "where": "input 0",
    "got": "2.001",
    "want": "2 +- 2e-10",
    "order": 1,
    "mode": "rev",
    "element": "(0, 1)",
    "explanation": "a factor",
    "exception": "",
    "reliability": ""
  },
  "found": {"seed": 0, "round": 3, "torch": "2.13.0", "gradfuzz": "0.1.0", "date": "2026-01-31"}
}
"""


def test_the_format_page_shows_a_file_that_loads():
    page = (Path(__file__).parent.parent / "docs" / "corpus-format.md").read_text()
    blocks = [block.split("```")[0] for block in page.split("```json\n")[1:]]
    (example,) = [block for block in blocks if '"format"' in block]
    assert dumps(loads(example)) == example


def test_a_writer_that_knows_less_is_understood():
    record = json.loads(FILE)
    for key in ("note", "expect", "observed", "found"):
        del record[key]
    record["case"]["storages"][0]["elements"] = [1, 0.1, 2.5, -0.0]  # 1.0 as JavaScript writes it
    again = loads(json.dumps(record))
    assert again.case == REPRODUCER.case
    assert (again.note, again.expect, again.observed, again.found) == ("", "pass", Observed(), Found())


def test_what_cannot_be_kept_is_named_when_it_is_saved(tmp_path):
    case = Case(TARGET, arguments=(Argument("how", value=Symptom.HANG), Argument("x", value=object())))
    with pytest.raises(CorpusError, match=r"argument 'how': <Symptom.HANG.*plain value instead"):
        save(reproducer_of(case), tmp_path)
    assert list(tmp_path.rglob("*.json")) == []


def test_a_reproducer_of_two_targets_is_refused():
    with pytest.raises(ValueError, match=r"target 'f.py::other' differs from the case's"):
        dataclasses.replace(REPRODUCER, target="f.py::other")


# --- damage ---------------------------------------------------------------------------------------


def change(text, keys, value):
    """The file with one value replaced; the keys lead to it."""
    record = json.loads(text)
    place = record
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    return json.dumps(record)


INPUT = ("case", "inputs", 0)
STORAGE = ("case", "storages", 0)
ARGUMENT = ("case", "arguments", 0)
PLAN = ("case", "plan")


@pytest.mark.parametrize(
    ("keys", "value", "message"),
    [
        (
            ("format",),
            "hypofuzz",
            "format: \"hypofuzz\": format is unknown; this gradfuzz reads 'gradfuzz-corpus' only",
        ),
        (("version",), 2, "version: 2: version is unknown; this gradfuzz reads 1 only; a newer one may read it"),
        (("version",), True, "version: true: version is unknown"),
        (("symptom",), "wrong", 'symptom: "wrong": is unknown; known are "wrong-gradient", '),
        (("expect",), "maybe", 'expect: "maybe": is unknown; known are "pass", "fail"'),
        (("target",), 7, "target: 7: must be a string"),
        (("target",), "", "target is empty"),
        (("signature",), "other|wrong-gradient||||", "signature 'other|wrong-gradient||||' must start with"),
        (("extra",), 1, 'key "extra" is unknown; known are "format", '),
        (("case",), [], "case: []: must be an object"),
        ((*STORAGE, "dtype"), "float99", 'case.storages[0].dtype: "float99": is unknown; known are "float64", '),
        ((*STORAGE, "dtype"), "load", 'case.storages[0].dtype: "load": is unknown'),
        ((*STORAGE, "dtype"), ["float64"], 'case.storages[0].dtype: ["float64"]: must be a string'),
        ((*STORAGE, "device"), "disk", 'case.storages[0].device: "disk": is unknown; a device is such as cpu'),
        ((*STORAGE, "elements"), 7, "case.storages[0].elements: 7: must be a list"),
        ((*STORAGE, "elements", 1), True, "case.storages[0].elements[1]: true: an element of float64 is a number"),
        ((*STORAGE, "elements", 1), None, "case.storages[0].elements[1]: null: an element of float64 is a number"),
        ((*STORAGE, "elements", 1), "1.0", 'case.storages[0].elements[1]: "1.0": a string element of float64 is'),
        ((*STORAGE, "elements", 1), "nan:7fc0", 'elements[1]: "nan:7fc0": a string element of float64 is'),
        ((*STORAGE, "elements", 1), "nan:3ff0000000000000", "the 16 lower-case hex digits of a nan"),
        ((*STORAGE, "elements", 1), 10**400, "beyond the largest float64"),
        (
            (*STORAGE, "elements", 1),
            math.nan,
            'case.storages[0].elements[1]: NaN: a string element of float64 is "inf"',
        ),
        ((*STORAGE, "elements", 1), -math.inf, "case.storages[0].elements[1]: -Infinity: a string element of"),
        ((*STORAGE, "more"), 1, 'key "more" is unknown'),
        ((*INPUT, "storage"), 1, "case.inputs[0].storage: 1: must be from 0 to 0"),
        ((*INPUT, "storage"), -1, "case.inputs[0].storage: -1: must be from 0 to 0"),
        ((*INPUT, "storage"), False, "case.inputs[0].storage: false: must be a whole number"),
        ((*INPUT, "size"), [2, -2], "case.inputs[0].size[1]: -2: must be from 0 to"),
        ((*INPUT, "size"), [2, 2.0], "case.inputs[0].size[1]: 2.0: must be a whole number"),
        ((*INPUT, "size"), "22", 'case.inputs[0].size: "22": must be a list'),
        ((*INPUT, "stride"), [2], "case.inputs[0].stride: [2]: must have a stride for each of the 2 sides of size"),
        ((*INPUT, "stride"), [3, 1], "stride: [3, 1]: size [2, 2] and offset 0 need 5 elements; the storage has 4"),
        ((*INPUT, "stride"), [-2, 1], "case.inputs[0].stride[0]: -2: must be from 0 to"),
        ((*INPUT, "stride"), [True, 1], "case.inputs[0].stride[0]: true: must be a whole number"),
        ((*INPUT, "offset"), 1, "size [2, 2] and offset 1 need 5 elements; the storage has 4"),
        ((*INPUT, "conj"), True, "case.inputs[0].conj: true: only complex dtypes have a conjugation bit"),
        ((*INPUT, "leaf"), 1, "case.inputs[0].leaf: 1: must be true or false"),
        ((*INPUT, "grad"), True, 'case.inputs[0]: {"storage": 0,'),
        ((*ARGUMENT, "kind"), "var", 'case.arguments[0].kind: "var": is unknown; known are "positional", "keyword"'),
        ((*ARGUMENT, "input"), 1, "case.arguments[0].input: 1: must be from 0 to 0"),
        ((*ARGUMENT, "value"), 1, 'must have either "input" or "value"'),
        (("case", "grad_outputs"), [[]], "case.grad_outputs[0]: []: must be an object"),
        ((*PLAN, "order"), 9, "case.plan.order: 9: must be from 0 to 3"),
        ((*PLAN, "order"), True, "case.plan.order: true: must be a whole number"),
        ((*PLAN, "oracles"), ["load"], 'case.plan.oracles[0]: "load": is unknown'),
        ((*PLAN, "undefined"), [0], "case.plan.undefined[0]: 0: must be true or false"),
        ((*PLAN, "seed"), 2**64, "case.plan.seed: 18446744073709551616: must be from"),
        (("found", "seed"), "0", 'found.seed: "0": must be a whole number'),
        (("observed", "got"), 2, "observed.got: 2: must be a string"),
    ],
)
def test_a_damaged_value_is_refused_by_place_and_value(tmp_path, keys, value, message):
    path = tmp_path / "damaged.json"
    path.write_text(change(FILE, keys, value))
    with pytest.raises(CorpusError) as caught:
        load(path)
    line = str(caught.value)
    assert line.startswith(f"{path}: ")
    assert message in line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"float": "nan"}, 'case.arguments[0].value.float: "nan": a string element of float64 is'),
        ({"float": 1.0, "list": []}, "must have exactly one key"),
        ({"pickle": "gASV"}, 'key "pickle" is unknown; known are "float", "complex", "list", "dtype", '),
        ({"dtype": "load"}, 'case.arguments[0].value.dtype: "load": is unknown'),
        ({"complex": [1.0]}, "case.arguments[0].value.complex: [1.0]: must be [re, im]"),
        ([1, [{"list": 3}]], "case.arguments[0].value[1][0].list: 3: must be a list"),
        (2**2000, "must be from"),
        (math.nan, "case.arguments[0].value: NaN: must be a string"),
    ],
)
def test_a_nonsense_argument_is_refused_by_place_and_value(value, message):
    with pytest.raises(CorpusError) as caught:
        loads(change(FILE, ARGUMENT, {"name": "x", "kind": "keyword", "value": value}), source="f.json")
    assert message in str(caught.value)


@pytest.mark.parametrize("missing", ["format", "version", "target", "signature", "symptom", "case"])
def test_a_missing_key_is_named(missing):
    record = json.loads(FILE)
    del record[missing]
    with pytest.raises(CorpusError, match=f'key "{missing}" is missing'):
        loads(json.dumps(record))


@pytest.mark.parametrize("cut", [0, 1, 30, 300, len(FILE) // 2, len(FILE) - 3])
def test_a_truncated_file_is_refused_on_one_line(tmp_path, cut):
    path = tmp_path / "cut.json"
    path.write_text(FILE[:cut])
    with pytest.raises(
        CorpusError, match=r"\Acut.json: not JSON: .* line \d+ column \d+ .*\Z|\A/.*: not JSON: [^\n]*\Z"
    ):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested more than 32 deep"),
        ('{"a":' * 100_000, "nested more than 32 deep"),
        (FILE.replace("[2, 1]", "[" * 40 + "]" * 40), "nested more than 32 deep"),
        ('{"expect": "pass", "expect": "fail"}', 'key "expect" stands twice in one object'),
        ("[" + "9" * 10_000 + "]", "integer string conversion"),
        ("<<<<<<< HEAD\n" + FILE, "not JSON: Expecting value: line 1 column 1"),
        ("null", "must be an object"),
        (FILE.replace("2.5", "1e400"), "case.storages[0].elements[2]: Infinity: beyond the largest float64"),
        (FILE.replace("softclip|", "soft\\nclip|"), "must start with"),
    ],
)
def test_nonsense_text_is_refused_on_one_line(text, message):
    with pytest.raises(CorpusError) as caught:
        loads(text, source="f.json")
    assert str(caught.value).startswith("f.json: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "stride"), [([4096, 4096], [0, 0]), ([0, 4096, 4096], [1, 0, 0]), ([1] * 65, [0] * 65), ([10**30], [0])]
)
def test_a_tensor_that_is_huge_only_by_expansion_is_refused(size, stride):
    text = change(change(FILE, (*INPUT, "size"), size), (*INPUT, "stride"), stride)
    with pytest.raises(CorpusError, match=r"case\.inputs\[0\]\.size"):
        loads(text)


def test_many_tensors_that_are_huge_together_are_refused():
    expanded = {"storage": 0, "size": [2**21], "stride": [0]}
    with pytest.raises(CorpusError, match=r"case: \d+ elements together; at most"):
        loads(change(FILE, ("case", "inputs"), [expanded] * 9))


@pytest.mark.parametrize(
    ("dtype", "element", "message"),
    [
        ("int8", 128, "an element of int8 is an integer from -128 to 127"),
        ("uint8", -1, "an element of uint8 is an integer from 0 to 255"),
        ("int64", 1.0, "an element of int64 is an integer"),
        ("int64", True, "an element of int64 is an integer"),
        ("bool", 1, "an element of a bool storage is true or false"),
        ("float16", 65520.0, 'beyond the largest float16, 65504; write "inf"'),
        ("float32", 1e39, "beyond the largest float32"),
        ("complex64", 1.0, r"an element of complex64 is \[re, im\]"),
        ("complex64", [1.0, 2.0, 3.0], r"an element of complex64 is \[re, im\]"),
    ],
)
def test_an_element_outside_its_dtype_is_refused(dtype, element, message):
    text = dumps(reproducer_of(case_of(dtype="float32" if dtype == "bool" else dtype)))
    text = change(change(text, (*STORAGE, "dtype"), dtype), (*STORAGE, "elements"), [element])
    with pytest.raises(CorpusError, match=message):
        loads(text)


def test_only_floating_tensors_may_ask_for_a_gradient():
    text = dumps(reproducer_of(case_of(1, 2, dtype="int64")))
    with pytest.raises(CorpusError, match=r"inputs\[0\].requires_grad: true: needs a floating or complex dtype"):
        loads(change(text, (*INPUT, "requires_grad"), True))


def test_a_file_that_is_no_text_is_refused(tmp_path):
    path = tmp_path / "f.json"
    path.write_bytes(b"\x80\x04\x95pickle")
    with pytest.raises(CorpusError, match="not UTF-8"):
        load(path)


def test_a_file_larger_than_the_limit_is_refused(tmp_path):
    path = tmp_path / "f.json"
    path.write_text(" " * (MOST_BYTES + 1))
    with pytest.raises(CorpusError, match="larger than"):
        load(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path):
    os.mkfifo(tmp_path / "f.json")
    with pytest.raises(CorpusError, match="not a regular file"):
        load(tmp_path / "f.json")


# --- side files -----------------------------------------------------------------------------------


def large(dtype="bfloat16"):
    return reproducer_of(case_of(*[1.5] * (SIDE_ELEMENTS + 1), dtype=dtype))


def save_large(tmp_path):
    path = save(large(), tmp_path)
    (side,) = path.parent.glob("*.bin")
    return path, side


@pytest.mark.parametrize(
    ("dtype", "element"),
    [("float64", 0.1), ("bfloat16", "nan:7fc1"), ("complex64", (-0.0, "inf")), ("bool", True), ("int16", -2)],
)
def test_a_large_storage_survives_beside_its_file(tmp_path, dtype, element):
    reproducer = reproducer_of(case_of(*[element] * (SIDE_ELEMENTS + 1), dtype=dtype))
    path = save(reproducer, tmp_path)
    assert len(path.read_text()) < 3000
    assert load(path) == reproducer
    assert content_hash(load(path)) == content_hash(reproducer)


def test_a_side_file_with_other_bytes_is_refused(tmp_path):
    path, side = save_large(tmp_path)
    side.write_bytes(b"\1" + side.read_bytes()[1:])
    with pytest.raises(CorpusError, match=r"case.storages\[0\].file: .* do not have the SHA-256 that its name says"):
        load(path)


def test_a_side_file_of_another_size_is_refused(tmp_path):
    path, side = save_large(tmp_path)
    side.write_bytes(side.read_bytes()[:-1])
    with pytest.raises(CorpusError, match=r"must hold 131074 bytes, holds 131073"):
        load(path)


def test_a_missing_side_file_is_refused(tmp_path):
    path, side = save_large(tmp_path)
    side.unlink()
    with pytest.raises(CorpusError, match=r"cannot be read: No such file"):
        load(path)


def test_a_side_file_that_is_a_link_is_refused(tmp_path):
    path, side = save_large(tmp_path)
    side.rename(tmp_path / "elsewhere")
    side.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CorpusError, match=r"must be a regular file, not a link or a device"):
        load(path)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a.bin", "A" * 64 + ".bin"])
def test_a_side_file_elsewhere_is_not_opened(tmp_path, name):
    path, _ = save_large(tmp_path)
    path.write_text(change(path.read_text(), (*STORAGE, "file"), name))
    with pytest.raises(CorpusError, match=r"must be 64 lower-case hex digits and \.bin"):
        load(path)


def test_a_text_alone_has_no_side_files(tmp_path):
    path, _ = save_large(tmp_path)
    with pytest.raises(CorpusError, match="load it from its folder"):
        loads(path.read_text())


# --- the store ------------------------------------------------------------------------------------


def test_a_reproducer_is_saved_under_its_target_and_symptom(tmp_path):
    path = save(REPRODUCER, tmp_path)
    name = f"wrong-gradient-{content_hash(REPRODUCER)[:12]}.json"
    assert path == tmp_path / "examples_ops.py_softclip" / name
    assert load(path) == REPRODUCER


def test_the_name_depends_on_signature_and_case_alone(tmp_path):
    other_day = dataclasses.replace(REPRODUCER, note="mine", found=Found(date="2030-01-01"))
    other_case = reproducer_of(case_of(1.0, 0.1, 2.5, 0.0, size=(2, 2)))
    assert content_hash(other_day) == content_hash(REPRODUCER)
    assert content_hash(other_case) != content_hash(REPRODUCER)


def test_the_hash_is_that_of_the_canonical_json():
    # Pinned: a changed encoding would give every defect of every corpus a second name.
    assert content_hash(REPRODUCER) == "f26a14cb1d44d53f6cb2d62fa7cedc5b9c038e06025fd9f9f0e5275f4cdc40fd"
    record = json.loads(FILE)
    content = {"signature": record["signature"], "case": record["case"]}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == content_hash(REPRODUCER)


@pytest.mark.parametrize(
    "address",
    [
        "../../etc/passwd::f",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a\\..\\b",
        "C:\\f",
        "\0",
        "~",
        "x" * 1000,
        ".hidden::f",
        "op:add",
    ],
)
def test_a_folder_name_never_leaves_the_corpus(address):
    name = folder_name(address)
    assert (Path("corpus") / name).parent == Path("corpus")
    assert name not in ("", ".", "..")
    assert not name.startswith(".")
    assert len(name) <= 100


def test_saving_twice_leaves_one_file_and_what_a_person_edited(tmp_path):
    path = save(REPRODUCER, tmp_path)
    accept(path, expect="fail")
    edited = path.read_text().replace(REPRODUCER.note, "upstream knows")
    path.write_text(edited)
    assert save(REPRODUCER, tmp_path) == path
    assert path.read_text() == edited
    assert list(path.parent.iterdir()) == [path]


def test_a_smaller_case_of_the_same_defect_takes_the_place_of_a_larger(tmp_path):
    old = save(REPRODUCER, tmp_path)
    accept(old, expect="fail")
    old.write_text(old.read_text().replace(REPRODUCER.note, "upstream knows"))
    small = reproducer_of(case_of(1.0))
    new = save(small, tmp_path)
    assert list(new.parent.iterdir()) == [new]
    assert load(new) == dataclasses.replace(small, expect="fail", note="upstream knows")


def test_a_larger_case_of_the_same_defect_is_not_kept(tmp_path):
    path = save(reproducer_of(case_of(1.0)), tmp_path)
    assert save(REPRODUCER, tmp_path) == path
    assert list(path.parent.iterdir()) == [path]


def test_a_mended_defect_stays_beside_a_new_one_of_its_signature(tmp_path):
    mended = save(reproducer_of(case_of(1.0)), tmp_path)
    new = save(REPRODUCER, tmp_path, stands=lambda old: False)
    assert load(new) == REPRODUCER
    assert set(files(tmp_path)) == {mended, new}
    smaller = save(reproducer_of(case_of(2.5, 1.0)), tmp_path, stands=lambda old: old == REPRODUCER)
    assert set(files(tmp_path)) == {mended, smaller}


def test_another_defect_of_the_same_target_is_kept_beside(tmp_path):
    other = dataclasses.replace(FINDING, where="input 1")
    paths = {save(REPRODUCER, tmp_path), save(reproducer_of(case_of(1.0), other), tmp_path)}
    assert set(files(tmp_path)) == paths
    assert len(paths) == 2


def test_two_orders_of_saving_leave_the_same_corpus(tmp_path):
    every = [reproducer_of(case_of(*held)) for held in [(1.0,), (2.5,), (1.0, 1.0), ()]]
    for folder, order in [("a", every), ("b", every[::-1])]:
        for reproducer in order:
            save(reproducer, tmp_path / folder)
    left, right = (list(files(tmp_path / folder)) for folder in "ab")
    assert [path.name for path in left] == [path.name for path in right]
    assert [load(path) for path in left] == [smallest(every)]


def test_a_hand_edited_file_is_not_overwritten_by_the_case_it_once_held(tmp_path):
    path = save(REPRODUCER, tmp_path)
    damaged = path.read_text()[:100]
    path.write_text(damaged)
    again = save(REPRODUCER, tmp_path)
    assert path.read_text() == damaged
    assert load(again) == REPRODUCER
    assert save(REPRODUCER, tmp_path) == again


def test_a_write_that_dies_leaves_the_corpus_as_it_was(tmp_path, monkeypatch):
    old = save(REPRODUCER, tmp_path)
    before = old.read_bytes()

    def dies(self, target):
        raise OSError("disk full")

    monkeypatch.setattr(Path, "replace", dies)
    with pytest.raises(OSError, match="disk full"):
        save(reproducer_of(case_of(1.0)), tmp_path)
    assert list(old.parent.iterdir()) == [old]
    assert old.read_bytes() == before
    with pytest.raises(OSError, match="disk full"):
        accept(old, expect="fail")
    assert old.read_bytes() == before


def test_a_process_killed_while_it_writes_leaves_nothing_that_is_read(tmp_path, monkeypatch):
    old = save(REPRODUCER, tmp_path)

    def killed(self, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    monkeypatch.setattr(Path, "unlink", lambda self, missing_ok=False: None)  # a killed process tidies nothing
    with pytest.raises(KeyboardInterrupt):
        save(reproducer_of(case_of(1.0)), tmp_path)
    assert len(list(old.parent.iterdir())) == 2
    assert list(files(tmp_path)) == [old]


def test_files_are_given_in_order_without_what_is_no_reproducer(tmp_path):
    for name in ["b/2.json", "b/1.json", "a/3.json", "README.md", ".hidden/4.json", "a/.5.json", "a/x.tmp"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert [str(path.relative_to(tmp_path)) for path in files(tmp_path)] == ["a/3.json", "b/1.json", "b/2.json"]
    assert list(files(tmp_path / "README.md")) == [tmp_path / "README.md"]
    with pytest.raises(CorpusError, match="nowhere: no such file or folder"):
        list(files(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    "text", [FILE, FILE.replace('  "expect"', '\t"expect"  '), FILE.replace('  "expect": "pass",\n', "")]
)
def test_accepting_changes_the_expectation_and_nothing_else(tmp_path, text):
    path = tmp_path / "f.json"
    path.write_text(text)
    accept(path, expect="fail")
    assert load(path) == dataclasses.replace(REPRODUCER, expect="fail")
    accept(path, expect="pass")
    assert load(path) == REPRODUCER
    if '"expect"' in text:
        assert path.read_text() == text


# --- for people -----------------------------------------------------------------------------------


def test_a_description_says_what_is_wrong_shows_the_call_and_how_to_replay():
    case = dataclasses.replace(
        case_of(1.0, 0.1, 2.5, -0.0, size=(2, 2)),
        arguments=(Argument("x", input=0), Argument("alpha", "keyword", value=2.0)),
    )
    path = f"corpus/examples_ops.py_softclip/wrong-gradient-{content_hash(reproducer_of(case))[:12]}.json"
    assert (
        describe(reproducer_of(case))
        == f"""\
examples/ops.py::softclip
wrong-gradient: the first derivative contradicts the function's own differences

first derivative (rev), input 0, element (0, 1): got 2.001, want 2 +- 2e-10 - a factor
found on 2026-01-31, with torch 2.13.0, gradfuzz 0.1.0, seed 0

    import torch
    # softclip is in examples/ops.py

    x = torch.tensor([[1.0, 0.1], [2.5, -0.0]], dtype=torch.float64, requires_grad=True)
    outputs = softclip(x, alpha=2.0)
    # grad_outputs: any that are not zero; the checker draws them from seed 0
    gradients = torch.autograd.grad(outputs, (x,), grad_outputs, create_graph=True)

replay: gradfuzz replay {path}"""
    )


@settings(max_examples=100, deadline=None)
@given(reproducers())
def test_the_python_of_a_description_makes_the_very_tensors(reproducer):
    seen = []
    inputs = tuple(Argument(f"x{i}", input=i) for i in range(len(reproducer.case.inputs)))
    reproducer = dataclasses.replace(reproducer, case=dataclasses.replace(reproducer.case, arguments=inputs))
    lines = [line for line in script(reproducer).split("\n") if not line.startswith("gradients")]
    scope = {"softclip": lambda *args: seen.extend(args)}
    exec("\n".join(lines), scope)
    built = reproducer.case.build()

    def comparable(x):  # a nan's payload has no literal in Python
        return x if x is None else (*bits(x)[:-1], str(x.detach().to(torch.complex128).tolist()))

    assert [comparable(x) for x in seen] == [comparable(x) for x in built.inputs]
    grads = [scope[f"grad_output_{i}"] for i in range(len(built.grad_outputs or ()))]
    assert [comparable(x) for x in grads] == [comparable(x) for x in built.grad_outputs or ()]


def test_a_description_of_a_hostile_note_cannot_steer_the_terminal():
    text = describe(dataclasses.replace(REPRODUCER, note="\x1b[2J\x1b]0;owned\x07\nreplay: rm -rf /"))
    assert "\x1b" not in text
    assert "note: \\x1b[2J" in text
