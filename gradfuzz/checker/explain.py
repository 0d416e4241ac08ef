"""What kind of mistake a wrong derivative looks like: a sentence where the evidence is unambiguous, else nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gradfuzz.checker.evaluation import Array, flat

if TYPE_CHECKING:
    from gradfuzz.checker.line import Measurement
    from gradfuzz.checker.run import Run

# Two ratios are taken for the same number within this fraction: far above the error bars of a contradiction's
# estimates, far below the gap between any two factors that people forget.
SAME_RATIO = 1e-5
# Factors that people forget or add, by the words for them.
FACTORS = {2.0: "twice", 0.5: "half", 3.0: "three times", 1 / 3: "a third of", 4.0: "four times", 0.25: "a quarter of"}


def _ratio(pairs: list[tuple[float, float]]) -> float | None:
    """The constant that every got is of its want; None where there is none or a single pair proves nothing."""
    ratios = [got / want for got, want in pairs if want != 0]
    if not ratios or len(ratios) < len(pairs):
        return None
    first = ratios[0]
    return first if all(abs(r - first) <= SAME_RATIO * max(abs(first), 1.0) for r in ratios) else None


def _of_ratio(ratio: float, count: int) -> str:
    if abs(ratio + 1) <= SAME_RATIO:
        return "the sign is wrong"
    for factor, words in FACTORS.items():
        if abs(ratio - factor) <= SAME_RATIO * factor:
            return f"{words} what it should be"
    summed = f"{count} times what it should be, the number of elements: summed where it should be meaned"
    meaned = f"1/{count} of what it should be, {count} being the number of elements: meaned where it should be summed"
    for n, words in ((float(count), summed), (1.0 / max(count, 1), meaned)):
        if count > 1 and abs(ratio - n) <= SAME_RATIO * n:
            return words
    return ""


def first_order(run: Run, m: Measurement, pairs: dict[int, tuple[float, float]]) -> str:
    """Explain wrong gradients by element: pairs of got and want."""
    x = flat(m.x)
    wrong = {k: p for k, p in pairs.items() if abs(p[0] - p[1]) > SAME_RATIO * max(abs(p[0]), abs(p[1]))}
    if not wrong:
        return ""
    count = max((t.numel() for t in run.subject.wrt), default=0)
    sentences = []
    if all(got == 0 for got, _ in wrong.values()):
        sentences.append("zero where it should not be")
    elif (ratio := _ratio(list(wrong.values()))) is not None and (text := _of_ratio(ratio, count)):
        sentences.append(text)
    right = [k for k in pairs if k not in wrong]
    if sentences and right and len(wrong) > 1:
        for words, holds in (("negative", x < 0), ("positive", x > 0), ("zero", x == 0)):
            if all(holds[k] for k in wrong) and not any(holds[k] for k in right):
                sentences.append(f"at the elements that are {words}, and only there")
    return " ".join(sentences)


def second_order(got: Array, want: Array, k: int) -> str:
    """Explain a wrong second derivative whose first is right: something is missing from the backward's graph."""
    with np.errstate(all="ignore"):
        known = np.isfinite(got) & np.isfinite(want)
    if not known[k]:
        return ""
    if got[k] == 0:
        return "zero although the first derivative is right: a term of the backward carries no graph"
    ratio = got[k] / want[k] if want[k] else 0.0
    words = _of_ratio(float(ratio), 1)
    return f"the first derivative is right, the second {words}" if words else ""
