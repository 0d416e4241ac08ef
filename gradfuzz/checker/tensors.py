"""Tensors as vectors of plain numbers and back, and copies that keep everything about their memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

Tensors = tuple[torch.Tensor, ...]
Array = np.ndarray[Any, np.dtype[np.float64]]


def materialize(grads: Sequence[torch.Tensor | None], like: Sequence[torch.Tensor]) -> Tensors:
    """Put zeros in the place of None and drop the graph."""
    return tuple(
        [torch.zeros_like(x).detach() if g is None else dense(g.detach()) for g, x in zip(grads, like, strict=True)]
    )


def dense(x: torch.Tensor) -> torch.Tensor:
    """Give a strided tensor of the same logical elements."""
    return x if x.layout is torch.strided else x.to_dense()


def is_differentiable(x: object) -> bool:
    """Whether a value is a tensor whose dtype can carry a gradient."""
    return isinstance(x, torch.Tensor) and (x.dtype.is_floating_point or x.dtype.is_complex)


def flat(tensors: Sequence[torch.Tensor]) -> Array:
    """Join all elements into one real vector; a complex element becomes its two parts."""
    parts = [_flat_part(t) for t in tensors]
    if len(parts) == 1:
        return parts[0].copy()
    return np.concatenate(parts) if parts else np.zeros(0)


def _flat_part(t: torch.Tensor) -> Array:
    """Give a real vector of one tensor's elements, which may share its memory."""
    t = t.detach()
    if t.dtype is torch.float64 and t.is_contiguous() and t.is_cpu and not (t.is_neg() or t._is_zerotensor()):
        return t.numpy().reshape(-1)  # the usual case, many times a check
    t = dense(t)
    t = torch.view_as_real(t.resolve_conj()) if t.dtype.is_complex else t.resolve_neg()
    # A tangent may be torch's immaterial zero tensor, which only a forced conversion makes real.
    return t.reshape(-1).to(device="cpu", dtype=torch.float64, copy=True).numpy(force=True)


def unflat(vector: Array, like: Sequence[torch.Tensor]) -> Tensors:
    """Undo `flat`: tensors with the shapes, dtypes and devices of `like`, sharing nothing with it."""
    result = []
    start = 0
    for t in like:
        count = t.numel() * (2 if t.dtype.is_complex else 1)
        part = torch.from_numpy(vector[start : start + count].copy())
        start += count
        if t.dtype is torch.float64 and t.is_cpu:
            result.append(part.view(t.shape))
            continue
        if t.dtype.is_complex:
            part = torch.view_as_complex(part.reshape(*t.shape, 2))
        result.append(part.reshape(t.shape).to(device=t.device, dtype=t.dtype))
    return tuple(result)


def segments(tensors: Sequence[torch.Tensor]) -> tuple[slice, ...]:
    """Where each tensor lies in `flat(tensors)`."""
    result = []
    start = 0
    for t in tensors:
        stop = start + t.numel() * (2 if t.dtype.is_complex else 1)
        result.append(slice(start, stop))
        start = stop
    return tuple(result)


def move(x: Sequence[torch.Tensor], u: Sequence[torch.Tensor], h: float) -> Tensors:
    """Give x + h u as fresh tensors."""
    return tuple(torch.add(a, b, alpha=h) for a, b in zip(x, u, strict=True))


def ordinary(x: torch.Tensor) -> bool:
    """Whether a tensor lies in memory as a fresh one would: nothing about its layout can matter."""
    return (
        x.layout is torch.strided
        and x.is_contiguous()
        and x.storage_offset() == 0
        and not x.is_conj()
        and not x.is_neg()
        and x.untyped_storage().nbytes() == x.numel() * x.element_size()
    )


def replicas(tensors: Sequence[torch.Tensor]) -> Tensors:
    """Copy tensors with everything about their memory: strides, offset, overlap, conj and neg bits, sharing."""
    storages: dict[int, torch.UntypedStorage] = {}
    result = []
    for t in tensors:
        if t.layout is not torch.strided or (ordinary(t) and len(tensors) == 1):
            result.append(t.detach().clone())
            continue
        plain = t.detach()
        # The bits are views over the same memory; strip them, copy the memory, put them back.
        plain = plain.conj() if plain.is_conj() else plain
        plain = torch._neg_view(plain) if plain.is_neg() else plain
        storage = plain.untyped_storage()
        key = storage.data_ptr() or id(t)
        if key not in storages:
            storages[key] = storage.clone()
        copy = torch.empty(0, dtype=plain.dtype, device=plain.device)
        copy = copy.set_(storages[key], plain.storage_offset(), plain.size(), plain.stride())
        copy = copy.conj() if t.is_conj() else copy
        result.append(torch._neg_view(copy) if t.is_neg() else copy)
    return tuple(result)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold equal elements, nan equal to nan."""
    if a.dtype is torch.complex32:  # which has no comparison kernels
        a, b = a.to(torch.complex64), b.to(torch.complex64)
    if torch.equal(a, b):
        return True
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())
