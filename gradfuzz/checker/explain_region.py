"""Which elements are wrong: a condition that holds for all of them and for none that is right."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch

from gradfuzz.checker.direction import Mask
from gradfuzz.checker.explain_evidence import Evidence
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Array, flat

# Sizes of the blocks that kernels work in: vector lanes and unrolled loops.
BLOCKS = (4, 8, 16, 32, 64)
# How many ways there must be to choose so many wrong ones of so many elements, that hitting just those of a condition
# is no chance. None for what no random number meets (a zero, a tie); some for a sign, which scores of elements could
# be told apart by; many where the condition itself is one of hundreds (a threshold, a place).
EXACT, SIGN, CHOSEN = 2, 20, 1000


class Condition(NamedTuple):
    """A condition on elements: the words for it, how many ways there must be, and where it holds."""

    words: str
    ways: int
    holds: Mask


def of(run: Run, evidence: Sequence[Evidence]) -> str:
    """Say at which elements the derivative is wrong and where only; empty where no condition tells, or several do."""
    wrong = np.concatenate([e.wrong for e in evidence])
    right = np.concatenate([e.right for e in evidence])
    if not (wrong.any() and right.any()):
        return ""
    points = _distinct(evidence)
    # At one point all wrong elements count, at several those of each: they are independent draws of values.
    ways = math.comb(int(sum(e.wrong.sum() + e.right.sum() for e in points)), int(sum(e.wrong.sum() for e in points)))
    by_place = [list(_conditions(run, e)) for e in evidence]
    holding: list[Condition] = []
    for same in zip(*by_place, strict=True):
        holds = np.concatenate([condition.holds for condition in same])
        if holds[wrong].all() and not holds[right].any() and ways >= same[0].ways:
            holding.append(same[0])
    holding.sort(key=lambda c: c.ways)
    for _, tier in groupby(holding, key=lambda c: c.ways):
        words = [condition.words for condition in tier]
        # Of two values that hold alike it cannot be told which it is; two names of one place are both true.
        return ", or ".join(words) if len(words) == 1 or holding[0].ways == CHOSEN else ""
    return _threshold(evidence) if ways >= CHOSEN else ""


def _distinct(evidence: Sequence[Evidence]) -> list[Evidence]:
    """One evidence a point: other grad_outputs do not move a region."""
    kept: list[Evidence] = []
    for e in evidence:
        if not any(all(torch.equal(a, b) for a, b in zip(e.x, k.x, strict=True)) for k in kept):
            kept.append(e)
    return kept


def _conditions(run: Run, e: Evidence) -> Iterator[Condition]:
    """Give the conditions by name, the most exact first; the same ones for every point."""
    x = e.x[e.slot]
    if not x.dtype.is_complex:
        yield from _about_values(run, e, flat((x,)))
    yield from _about_places(e)


def _about_values(run: Run, e: Evidence, x: Array) -> Iterator[Condition]:
    picked = x[e.indices]
    yield Condition("at the elements that are zero", EXACT, picked == 0)
    _, place, count = np.unique(x, return_inverse=True, return_counts=True)
    yield Condition("at the elements that equal another element", EXACT, (count[place] > 1)[e.indices] & (picked != 0))
    for k, (other, name) in enumerate(zip(e.x, run.subject.names, strict=True)):
        if k != e.slot and (values := _aligned(other, e.x[e.slot])) is not None:
            yield Condition(f"where it equals {name}", EXACT, picked == values[e.indices])
    yield from _about_indices(run, e)
    yield Condition("at the elements that are negative", SIGN, picked < 0)
    yield Condition("at the elements that are positive", SIGN, picked > 0)
    for k, (other, name) in enumerate(zip(e.x, run.subject.names, strict=True)):
        if k != e.slot and (values := _aligned(other, e.x[e.slot])) is not None:
            there = values[e.indices]
            yield Condition(f"where {name} is zero", EXACT, there == 0)
            yield Condition(f"where {name} is negative", SIGN, there < 0)
            yield Condition(f"where {name} is positive", SIGN, there > 0)
            yield Condition(f"where it is greater than {name}", SIGN, picked > there)
            yield Condition(f"where it is less than {name}", SIGN, picked < there)


def _about_indices(run: Run, e: Evidence) -> Iterator[Condition]:
    """Look at integer arguments: which positions along a dimension they hold more than once."""
    shape = e.shape
    for index in run.subject.others:
        if index.dtype not in (torch.int64, torch.int32) or index.numel() < 2 or index.layout is not torch.strided:
            continue
        held = np.abs(index.reshape(-1).numpy(force=True))
        if held.max() >= max(shape, default=0):
            continue  # no positions: numbers of another kind
        counts = np.bincount(held)
        for d, side in enumerate(shape):
            if len(counts) > side:
                continue
            often = np.zeros(side, dtype=bool)
            often[: len(counts)] = counts > 1
            positions = np.unravel_index(e.indices, shape)[d]
            words = "at the positions that occur more than once among the indices"
            yield Condition(words, EXACT, often[positions])


def _aligned(other: torch.Tensor, x: torch.Tensor) -> Array | None:
    """Give the elements of another input that meet those of x under broadcasting; None where they do not."""
    if other.dtype.is_complex:
        return None
    try:
        return flat((torch.broadcast_to(other, x.shape).contiguous(),))
    except RuntimeError:
        return None


def _about_places(e: Evidence) -> Iterator[Condition]:
    shape, parts = e.shape, 2 if e.x[e.slot].dtype.is_complex else 1
    if not shape:
        return
    places = e.indices // parts
    count = math.prod(shape)
    index = np.unravel_index(places, shape)
    if len(shape) > 1 and shape[-1] == shape[-2]:
        yield Condition("on the diagonal", CHOSEN, index[-1] == index[-2])
        yield Condition("off the diagonal", CHOSEN, index[-1] != index[-2])
        yield Condition("above the diagonal", CHOSEN, index[-1] > index[-2])
        yield Condition("below the diagonal", CHOSEN, index[-1] < index[-2])
    for d, side in enumerate(shape):
        yield Condition(f"at the last index of dimension {d}", CHOSEN, index[d] == side - 1)
        yield Condition(f"at the first index of dimension {d}", CHOSEN, index[d] == 0)
        yield Condition(f"beyond the first index of dimension {d}", CHOSEN, index[d] > 0)
    rests = {block: count % block for block in BLOCKS if count > block and count % block}
    for rest in sorted(set(rests.values())):
        blocks = " or ".join(str(block) for block, left in rests.items() if left == rest)
        words = f"at the last {rest} of {count} elements, what a block of {blocks} leaves over"
        yield Condition(words, CHOSEN, places >= count - rest)


def _threshold(evidence: Sequence[Evidence]) -> str:
    """Look for a number that separates the wrong from the right, by value or by size."""
    if evidence[0].x[evidence[0].slot].dtype.is_complex:
        return ""
    x = np.concatenate([flat((e.x[e.slot],))[e.indices] for e in evidence])
    wrong = np.concatenate([e.wrong for e in evidence])
    right = np.concatenate([e.right for e in evidence])
    for name, values in (("value", x), ("absolute value", np.abs(x))):
        if values[wrong].min() > values[right].max():
            above, below = values[wrong].min(), values[right].max()
            return f"at the elements of {name} above some number between {below:.3g} and {above:.3g}"
        if values[wrong].max() < values[right].min():
            above, below = values[right].min(), values[wrong].max()
            return f"at the elements of {name} below some number between {below:.3g} and {above:.3g}"
    return ""
