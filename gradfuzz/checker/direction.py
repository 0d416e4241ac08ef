"""Directions: random vectors at the scale of what they move, never near zero."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch

from gradfuzz.checker.evaluation import Array, Tensors, flat, segments, unflat

Rng = np.random.Generator
Mask = np.ndarray[Any, np.dtype[np.bool_]]

# Elements much smaller than their tensor move by a tenth of its rms: a step relative to 1e-9 alone would
# drown in the rounding of the others. By a tenth of 1 at most: beside an element of 1e9 one of 0.5 must not
# be moved by 1e8, or every smooth step of an activation looks like a kink.
LEAST_SHARE_OF_RMS = 0.1
LARGEST_BORROWED_SCALE = 1.0
# More purposes than one check has draws for: seed and purpose never give the key of another pair.
PURPOSES = 1 << 16
# Strides of seeds and purposes through the table of draws: odd, and far apart at every small multiple.
TABLE = 1 << 16
SEED_STRIDE, PURPOSE_STRIDE = 25_999, 9_973
# Jitter moves the inputs by two roundings, twice: enough to see what rounding does to a value, seldom less.
JITTER_ROUNDINGS = 2
JITTER_DRAWS = 2

# Which draws a generator serves; every purpose has its own, so that one oracle's draws never move another's.
GRAD_OUTPUTS, DIRECTIONS, JITTER, SETTLING, FORWARD, PRECISION, BATCH, FLATNESS, IDENTITIES, NESTED, EXPLAINING = range(
    11
)


def generator(seed: int, *purpose: int) -> Rng:
    """Make a generator of its own for one purpose; equal arguments give equal draws."""
    key = abs(seed)
    for number in purpose:
        key = key * PURPOSES + number
    return np.random.Generator(np.random.PCG64(key))


def signs_and_sizes(rng: Rng, count: int) -> Array:
    """Draw `count` numbers uniform in +-[0.5, 1.5]: none of them near zero, none dominating."""
    draws = rng.uniform(-1.0, 1.0, count)
    return np.asarray(draws + np.copysign(0.5, draws))


def drawn(seed: int, purpose: int, count: int) -> Array:
    """Give `count` numbers as `signs_and_sizes` draws them, from a table: the same array must not be written to.

    A campaign asks for a few dozen of them a case, and making a generator for each takes as long as a small backward.
    A direction needs no more than to be generic, and not the one of the last case.
    """
    if count > TABLE:
        return signs_and_sizes(generator(seed, purpose), count)
    start = (abs(seed) * SEED_STRIDE + purpose * PURPOSE_STRIDE) % TABLE
    return _table()[start : start + count]


@cache
def _table() -> Array:
    table = signs_and_sizes(generator(TABLE), 2 * TABLE)
    table.flags.writeable = False
    return table


def scales(x: Sequence[torch.Tensor]) -> Array:
    """Give the scale of every element: its size, or a tenth of its tensor's rms or of 1; 1 where all are zero.

    Elements that are not finite get scale 0: no difference can be taken along them.
    """
    sizes = np.abs(flat(x))
    finite = np.isfinite(sizes)
    sizes[~finite] = 0.0
    for part in segments(x):
        chunk = sizes[part]
        largest = float(chunk.max(initial=0.0))
        if largest == 0.0:
            chunk[:] = 1.0
        else:
            relative = chunk / largest
            rms = largest * math.sqrt(float(relative @ relative) / len(chunk))
            np.maximum(chunk, LEAST_SHARE_OF_RMS * min(rms, LARGEST_BORROWED_SCALE), out=chunk)
    sizes[~finite] = 0.0
    return sizes


def direction(rng: Rng, x: Sequence[torch.Tensor], allowed: Mask | None = None) -> Tensors:
    """Draw a direction at the scale of `x`, zero where `allowed` is false."""
    s = scales(x)
    u = signs_and_sizes(rng, len(s)) * s
    if allowed is not None:
        u[~allowed] = 0.0
    return unflat(u, x)


def generic(rng: Rng, outputs: Sequence[torch.Tensor], allowed: Mask | None = None) -> Tensors:
    """Draw grad_outputs in +-[0.5, 1.5], zero where `allowed` is false."""
    count = sum(o.numel() * (2 if o.dtype.is_complex else 1) for o in outputs)
    v = signs_and_sizes(rng, count)
    if allowed is not None:
        v[~allowed] = 0.0
    return unflat(v, outputs)


def jittered(rng: Rng, x: Sequence[torch.Tensor], eps: float) -> Iterator[Tensors]:
    """Give points whose every element differs from x by two roundings, up or down: what they change is rounding."""
    values = flat(x)
    for _ in range(JITTER_DRAWS):
        yield unflat(values * (1 + rng.choice((-1.0, 1.0), len(values)) * JITTER_ROUNDINGS * eps), x)


def unit(x: Sequence[torch.Tensor], index: int, size: float = 1.0) -> Tensors:
    """Give the direction that moves one element of `flat(x)` alone."""
    u = np.zeros(sum(t.numel() * (2 if t.dtype.is_complex else 1) for t in x))
    u[index] = size
    return unflat(u, x)
