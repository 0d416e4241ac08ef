"""Argument values as JSON: plain where JSON has the kind, else an object of one key that names the kind."""

from __future__ import annotations

import math
import struct
from enum import Enum
from typing import TYPE_CHECKING

import torch

from gradfuzz.corpus.number import DTYPES, read_real, write_real

if TYPE_CHECKING:
    from gradfuzz.case import Real, Value
    from gradfuzz.corpus.field import Field

# Argument lists are written by hand or drawn: longer ones belong in a tensor.
MOST_ITEMS = 4096
# The widest whole number an argument can be; the bound is on the time that decimal conversion takes.
MOST_BITS = 1024
PARTS = ("re", "im")

_LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")
_MEMORY_FORMATS = ("contiguous_format", "preserve_format", "channels_last", "channels_last_3d")
# The enumerations of torch that a file can name: the kind, and its members.
TABLES: dict[str, dict[str, object]] = {
    "dtype": {name: getattr(torch, name) for name in DTYPES},
    "layout": {name: getattr(torch, name) for name in _LAYOUTS},
    "memory_format": {name: getattr(torch, name) for name in _MEMORY_FORMATS},
}


def _named(value: object) -> dict[str, str] | None:
    if isinstance(value, torch.dtype | torch.layout | torch.memory_format):
        for kind, table in TABLES.items():
            for name, member in table.items():
                if member is value:
                    return {kind: name}
    return None


def _write_float(value: float) -> Real:
    if math.isnan(value):
        return f"nan:{int.from_bytes(struct.pack('>d', value), 'big'):016x}"
    return write_real(float(value), "float64")


def _read_float(field: Field) -> float:
    try:
        number = read_real(field.value, "float64")
    except ValueError as error:
        raise field.wrong(str(error)) from None
    if isinstance(number, str) and number.startswith("nan:"):
        (nan,) = struct.unpack(">d", bytes.fromhex(number.removeprefix("nan:")))
        return float(nan)
    return float(number)


def write_value(value: Value) -> object:
    """Give an argument's value as JSON shall hold it; a ValueError names what cannot be kept."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, Enum):
        raise ValueError(f"{value!r} cannot be kept in a file; pass the enumeration's plain value instead")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if value.bit_length() > MOST_BITS:
            raise ValueError(f"a whole number of {value.bit_length()} bits cannot be kept; at most {MOST_BITS}")
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": _write_float(value)}
    if isinstance(value, complex):
        return {"complex": [_write_float(value.real), _write_float(value.imag)]}
    if isinstance(value, tuple):  # torch.Size is one, and equal to the plain tuple
        return [write_value(item) for item in value]
    if isinstance(value, list):
        return {"list": [write_value(item) for item in value]}
    if (named := _named(value)) is not None:
        return named
    raise ValueError(
        f"a value of type {type(value).__name__} cannot be kept in a file; "
        f"kept are None, bool, int, float, complex, str, tuple, list, torch.{', torch.'.join(TABLES)}"
    )


def read_value(field: Field) -> Value:
    """Give the value that a field holds; nothing but the tables' names is looked up."""
    value = field.value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, list):
        return tuple(read_value(item) for item in field.items(most=MOST_ITEMS))
    if isinstance(value, dict):
        return _read_tagged(field)
    if isinstance(value, int):
        return field.integer(-(1 << MOST_BITS) + 1, (1 << MOST_BITS) - 1)
    if isinstance(value, float):
        if math.isinf(value):
            raise field.wrong('beyond the largest float64; write {"float": "inf"} for an infinity')
        return value
    return field.text()


def _read_tagged(field: Field) -> Value:
    fields = field.record(optional=("float", "complex", "list", *TABLES))
    if len(fields) != 1:
        raise field.wrong("must have exactly one key, the kind of the value")
    ((kind, inner),) = fields.items()
    if kind == "list":
        return [read_value(item) for item in inner.items(most=MOST_ITEMS)]
    if kind in TABLES:
        return TABLES[kind][inner.name(TABLES[kind])]
    parts = list(inner.items(most=len(PARTS))) if kind == "complex" else [inner]
    if kind == "complex" and len(parts) != len(PARTS):
        raise inner.wrong("must be [re, im]")
    numbers = [_read_float(part) for part in parts]
    return complex(*numbers) if kind == "complex" else numbers[0]
