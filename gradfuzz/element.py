"""Elements of tensors as plain data, exact to the bit for every dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import torch

if TYPE_CHECKING:
    from gradfuzz.case import Element, Real

# The integer dtype that holds the bits of a floating dtype, by its width in bytes.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

FLOATS = ("float64", "float32", "bfloat16", "float16")
COMPLEX = {"complex128": "float64", "complex64": "float32", "complex32": "float16"}
INTEGERS = ("int64", "int32", "int16", "int8", "uint8", "bool")


def dtype_of(name: str) -> torch.dtype:
    """Give the dtype of a torch name, such as ``"float64"``; a KeyError names what is unknown."""
    dtype = getattr(torch, name, None)
    if name not in (*FLOATS, *COMPLEX, *INTEGERS) or not isinstance(dtype, torch.dtype):
        raise KeyError(f"dtype {name!r} is unknown; known are {', '.join((*FLOATS, *COMPLEX, *INTEGERS))}")
    return dtype


def _nan_bits(text: str) -> int:
    return int(text.removeprefix("nan:"), 16)


def _reals(dtype: torch.dtype, values: Sequence[Real]) -> torch.Tensor:
    if not dtype.is_floating_point:
        return torch.tensor(values, dtype=dtype)
    nans = {i: _nan_bits(v) for i, v in enumerate(values) if isinstance(v, str) and v.startswith("nan")}
    plain = [0.0 if i in nans else float(v) for i, v in enumerate(values)]
    flat = torch.tensor(plain, dtype=torch.float64).to(dtype)
    if nans:
        width = dtype.itemsize
        bits = flat.view(_BITS[width])
        for i, pattern in nans.items():
            signed = pattern - (1 << 8 * width) if pattern >> (8 * width - 1) else pattern
            bits[i] = signed
    return flat


def tensor_of(dtype: str, elements: Sequence[Element]) -> torch.Tensor:
    """Make a fresh one-dimensional tensor of these elements, nan payloads and signed zeros included."""
    if dtype in COMPLEX:
        parts = [part for element in elements for part in cast("tuple[Real, Real]", element)]
        return torch.view_as_complex(_reals(dtype_of(COMPLEX[dtype]), parts).reshape(-1, 2)).clone()
    return _reals(dtype_of(dtype), cast("Sequence[Real]", elements))


def _real_elements(flat: torch.Tensor) -> list[Real]:
    if not flat.dtype.is_floating_point:
        return cast("list[Real]", flat.tolist())
    width = flat.dtype.itemsize
    values: list[Real] = []
    bits: list[int] | None = None
    for i, value in enumerate(flat.to(torch.float64).tolist()):
        if math.isfinite(value):
            values.append(value)
        elif math.isinf(value):
            values.append("inf" if value > 0 else "-inf")
        else:
            bits = flat.contiguous().view(_BITS[width]).tolist() if bits is None else bits
            values.append(f"nan:{bits[i] & ((1 << 8 * width) - 1):0{2 * width}x}")
    return values


def elements_of(flat: torch.Tensor) -> tuple[Element, ...]:
    """Give the elements of a one-dimensional tensor as plain data; `tensor_of` makes it again."""
    flat = flat.detach().cpu().resolve_conj().resolve_neg()
    if flat.dtype.is_complex:
        parts = _real_elements(torch.view_as_real(flat.contiguous()).reshape(-1))
        return tuple(zip(parts[::2], parts[1::2], strict=True))
    return tuple(_real_elements(flat))
