"""What kind of mistake gives just these numbers: formulas that must give all of them, at every point."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

from gradfuzz.checker import explain_evidence, explain_term, numeric
from gradfuzz.checker.explain_evidence import FIT, Evidence
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Array, flat

# A constant that is fitted is proved by the numbers beyond the first; one of them could be chance, two are not.
FEWEST = 3
# Two constants are the same number within this: far above the error of a fitted one, far below the gap between two
# that people forget.
SAME = 1e-7
# Factors that people forget or add, by the words for them.
FACTORS = {2.0: "twice", 0.5: "half", 3.0: "three times", 1 / 3: "a third of", 4.0: "four times", 0.25: "a quarter of"}

Guess = Callable[[Run, Sequence[Evidence]], str]


class Kind(NamedTuple):
    """What explains every wrong number; `whole` where it explains the right ones too, and no region need be named."""

    words: str = ""
    whole: bool = False


def of(run: Run, evidence: Sequence[Evidence]) -> Kind:
    """Say what explains every wrong number, the plainest first; empty words where nothing does."""
    guesses: tuple[tuple[Guess, bool], ...] = (
        (_zero, False),
        (_conjugate, True),
        (_permuted, True),
        (_as_if_transposed, True),
        (_wrong_dimension, True),
        (_ratio, False),
        (_swapped, True),
        (_deaf, True),
        (_handed_through, False),
        (explain_term.factor, False),
        (explain_term.gap, False),
        (_along_a_dimension, True),
    )
    for guess, whole in guesses:
        if words := guess(run, evidence):
            return Kind(words, whole)
    return Kind()


def _zero(run: Run, evidence: Sequence[Evidence]) -> str:
    everything = all((e.got[e.wrong] == 0).all() for e in evidence)
    return "zero where it should not be" if everything else ""


def _ratio(run: Run, evidence: Sequence[Evidence]) -> str:
    got = np.concatenate([e.got[e.wrong] for e in evidence])
    want = np.concatenate([e.want[e.wrong] for e in evidence])
    if len(got) < FEWEST or not want.all():
        return ""
    ratio = float(got @ want / (want @ want))
    # One number for many, so that six digits of each are enough: a right formula may itself be no better.
    if not ratio or not all(e.near(ratio * e.want, fit=numeric.INSIGNIFICANT)[e.wrong].all() for e in evidence):
        return ""
    # Only the scale of a number is seen where all of them are as large: at one point of a linear function.
    if np.ptp(np.abs(want)) <= SAME * np.abs(want).max():
        return ""
    # Known no better than the best known of them.
    doubt = min(float((e.estimate.error[e.wrong] / np.abs(e.want[e.wrong])).min()) for e in evidence)
    return _words_of(run, ratio, max(SAME, numeric.AGREE_BARS * doubt))


def _near(a: float, b: float, doubt: float) -> bool:
    return abs(a - b) <= doubt * max(abs(a), abs(b))


def _words_of(run: Run, ratio: float, doubt: float) -> str:
    """Put a ratio into words, with what in the call has that value."""
    if _near(ratio, -1, doubt):
        return "of the wrong sign"
    for factor, words in FACTORS.items():
        if _near(ratio, factor, doubt):
            return f"{words} what it should be"  # too many things number two, three or four to name one
    count = round(1 / ratio) if 0 < ratio < 1 else 0
    text = f"1/{count} of" if count and _near(ratio, 1 / count, doubt) else f"{ratio:.6g} times"
    return f"{text} what it should be{_cause_of(run, ratio, doubt)}"


def _cause_of(run: Run, ratio: float, doubt: float) -> str:
    """Name what the ratio is, or is one over; nothing where it is nothing, or might be more than one thing."""
    causes: dict[str, str] = {}
    for k, value in enumerate(run.subject.arguments(run.subject.point)):
        if isinstance(value, int | float) and value not in (0, 1, -1):
            if _near(ratio, value, doubt):
                causes[f"argument {k}"] = f", the value of argument {k}"
            if _near(ratio, 1 / value, doubt):
                causes[f"argument {k}"] = f", one over the value of argument {k}"
    for name, t in (*zip(run.subject.names, run.subject.wrt, strict=True), *_outputs(run)):
        n = t.numel()
        if n > 1 and _near(ratio, n, doubt):
            text = f", the number of elements of {name}: summed where it should be meaned"
            causes.setdefault("elements", text)
        if n > 1 and _near(ratio, 1 / n, doubt):
            text = f", one over the number of elements of {name}: meaned where it should be summed"
            causes.setdefault("elements", text)
        for d, side in enumerate(t.shape if t.dim() > 1 else ()):
            if side > 1 and _near(ratio, side, doubt):
                causes.setdefault("length", f", the length of dimension {d} of {name}")
            if side > 1 and _near(ratio, 1 / side, doubt):
                causes.setdefault("length", f", one over the length of dimension {d} of {name}")
    return next(iter(causes.values())) if len(causes) == 1 else ""


def _outputs(run: Run) -> list[tuple[str, torch.Tensor]]:
    return [(f"output {i}", o) for i, o in enumerate(run.base.outputs)]


def _conjugate(run: Run, evidence: Sequence[Evidence]) -> str:
    """With real grad_outputs a missing conjugate turns the sign of every imaginary part, and of nothing else."""
    if any(not e.x[e.slot].dtype.is_complex for e in evidence):
        return ""
    turned = sum(int(e.wrong.sum()) for e in evidence)
    holds = all(
        bool((e.indices[e.wrong] % 2 == 1).all()) and bool(e.near(-e.want)[e.wrong].all()) for e in evidence
    ) and any(bool(e.right.any()) for e in evidence)
    return "the conjugate of what it should be" if holds and turned >= FEWEST else ""


def _swapped(run: Run, evidence: Sequence[Evidence]) -> str:
    """Tell whether another input is given this one's gradient, and this one the other's."""
    if not all(e.complete and e.u is None for e in evidence):
        return ""
    for other, t in enumerate(evidence[0].x):
        if other == evidence[0].slot or tuple(t.shape) != evidence[0].shape:
            continue
        pairs = [(e, explain_evidence.of_other(run, e, other)) for e in evidence]
        known = [(e, o) for e, o in pairs if o is not None]
        if len(known) >= FEWEST and all(e.near(o.want).all() and o.near(e.want).all() for e, o in known):
            return f"swapped with the gradient of {run.subject.names[other]}"
    return ""


def _permuted(run: Run, evidence: Sequence[Evidence]) -> str:
    """The right numbers in the wrong places: transposed, turned round, moved on, or otherwise."""
    if not all(e.complete for e in evidence) or evidence[0].x[evidence[0].slot].dtype.is_complex:
        return ""
    if sum(int(e.wrong.sum()) for e in evidence) < FEWEST:
        return ""
    for words, change in _rearrangements(evidence[0].shape):
        if all(e.known.all() and e.near(change(e.want.reshape(e.shape)).reshape(-1)).all() for e in evidence):
            return words
    return ""


def _rearrangements(shape: tuple[int, ...]) -> Iterator[tuple[str, Callable[[Array], Array]]]:
    """Give the ways people put numbers into wrong places, for a shape."""
    for a, b in combinations(range(len(shape)), 2):
        if shape[a] == shape[b]:
            which = "" if len(shape) == 2 else f" in dimensions {a} and {b}"
            yield f"transposed{which}", lambda w, a=a, b=b: np.swapaxes(w, a, b)  # type: ignore[misc]
        elif len(shape) == 2:
            # The memory of the transpose, read as if it were not.
            yield "transposed in memory and read as if it were not", lambda w: w.T.reshape(-1)
            yield "transposed in memory and read as if it were not", lambda w: w.reshape(w.shape[::-1]).T
    for d in range(len(shape)):
        yield f"in reverse order along dimension {d}", lambda w, d=d: np.flip(w, d)  # type: ignore[misc]
    for d in range(len(shape)):
        for by in (1, -1):
            words = f"moved by one along dimension {d}"
            yield words, lambda w, d=d, by=by: np.roll(w, by, d)  # type: ignore[misc]


def _as_if_transposed(run: Run, evidence: Sequence[Evidence]) -> str:
    """The gradient that would be right were a grad_output or another input transposed, as a product's operand is."""
    if not all(e.complete and e.u is None for e in evidence) or sum(int(e.wrong.sum()) for e in evidence) < FEWEST:
        return ""
    # What has lost its graph is looked at without the derivatives of every output.
    given = evidence[0].v if all(e.jacobian.shape == (len(e.indices), flat(e.v).size) for e in evidence) else ()
    for k, v in enumerate(given):
        for a, b in _squares(v):
            turned = [tuple(w.transpose(a, b) if i == k else w for i, w in enumerate(e.v)) for e in evidence]
            if all(e.near(e.jacobian @ flat(t)).all() for e, t in zip(evidence, turned, strict=True)):
                return "what it should be if the grad_output were transposed"
    for k, x in enumerate(evidence[0].x):
        if k == evidence[0].slot:
            continue
        for a, b in _squares(x):
            elsewhere = [explain_evidence.moved(run, e, k, e.x[k].transpose(a, b).contiguous()) for e in evidence]
            if all(m is not None and e.near(m.want).all() for e, m in zip(evidence, elsewhere, strict=True)):
                return f"what it should be if {run.subject.names[k]} were transposed"
    return ""


def _squares(t: torch.Tensor) -> Iterator[tuple[int, int]]:
    """Give the pairs of dimensions of a tensor that may be swapped without changing its shape."""
    for a, b in combinations(range(t.dim()), 2):
        if t.shape[a] == t.shape[b] > 1 and not t.dtype.is_complex:
            yield a, b


def _wrong_dimension(run: Run, evidence: Sequence[Evidence]) -> str:
    """For an input that is broadcast: summed over other dimensions of the output than those it was expanded along."""
    shape, outputs = evidence[0].shape, evidence[0].y
    if not all(e.complete for e in evidence) or len(outputs) != 1:
        return ""
    target = tuple(outputs[0].shape)
    padded = (1,) * (len(target) - len(shape)) + shape
    if len(padded) != len(target) or any(p not in (1, t) for p, t in zip(padded, target, strict=True)):
        return ""
    proper = tuple(d for d, (p, t) in enumerate(zip(padded, target, strict=True)) if p != t)
    if not proper:
        return ""
    parts = [explain_term.unreduced(run, e) for e in evidence]
    kept = [(e, part) for e, part in zip(evidence, parts, strict=True) if part is not None]
    if len(kept) < FEWEST or any(not np.allclose(p.sum(proper).reshape(-1), e.want, rtol=SAME) for e, p in kept):
        return ""
    for count in range(1, len(target) + 1):
        for dims in combinations(range(len(target)), count):
            left = math.prod(side for d, side in enumerate(target) if d not in dims)
            if dims == proper or left != math.prod(shape):
                continue
            if all(e.near(p.sum(dims).reshape(-1))[e.wrong].all() for e, p in kept):
                said, meant = (", ".join(map(str, d)) for d in (dims, proper))
                return f"summed over dimension {said} of the output where it should be over dimension {meant}"
    return ""


def _deaf(run: Run, evidence: Sequence[Evidence]) -> str:
    """Tell whether the gradient stays the same whatever the grad_outputs are."""
    pairs = [
        (a, b)
        for a, b in combinations(evidence, 2)
        if a.u is None and all(torch.equal(s, t) for s, t in zip(a.x, b.x, strict=True))
    ]
    if not pairs or any((a.want == b.want).all() for a, b in pairs):
        return ""
    same = all(a.got.any() and np.abs(a.got - b.got).max() <= FIT * np.abs(a.got).max() for a, b in pairs)
    return "it does not depend on the grad_output" if same else ""


def _handed_through(run: Run, evidence: Sequence[Evidence]) -> str:
    """Tell whether the gradient is the grad_output itself, as a straight-through estimator's is."""
    if evidence[0].u is not None or sum(int(e.wrong.sum()) for e in evidence) < FEWEST:
        return ""
    for k, v in enumerate(evidence[0].v):
        if v.shape == evidence[0].shape and all(e.near(flat((e.v[k],))[e.indices])[e.wrong].all() for e in evidence):
            term = explain_term.gap(run, evidence)
            return "; ".join(t for t in ("the grad_output itself, as if the derivative were 1", term) if t)
    return ""


def _along_a_dimension(run: Run, evidence: Sequence[Evidence]) -> str:
    """A gap or a ratio that is the same for all elements along a dimension, and not along another."""
    shape = evidence[0].shape
    if not all(e.complete and e.known.all() for e in evidence) or evidence[0].x[evidence[0].slot].dtype.is_complex:
        return ""
    for d, side in enumerate(shape):
        if side < 2 or evidence[0].got.size == side:
            continue  # a single line tells no dimension
        # So many numbers must equal the first one of their line.
        if sum(e.got.size - e.got.size // side for e in evidence) < FEWEST:
            continue
        if all(_steady(e, d, e.want) for e in evidence):
            continue  # the derivative itself does not change along it
        if all(_steady(e, d, e.got - e.want) for e in evidence):
            return f"got - want is the same for all elements along dimension {d}: a sum over it is missing or wrong"
        if all(_proportional(e, d) for e in evidence):
            name = run.subject.names[evidence[0].slot]
            return (
                f"got - want is {name} times what is the same for all elements along dimension {d}: "
                "a sum over it is missing or wrong"
            )
        with np.errstate(all="ignore"):
            if all(bool(e.want.all()) and _steady(e, d, e.got / e.want, relative=True) for e in evidence):
                return f"a factor is wrong that is the same for all elements along dimension {d}"
    return ""


def _steady(e: Evidence, d: int, numbers: Array, *, relative: bool = False) -> bool:
    """Whether numbers by element stay the same along a dimension, within the error of want."""
    table = numbers.reshape(e.shape)
    error = (_doubt(e) / (np.abs(e.want) if relative else 1.0)).reshape(e.shape)
    return bool((np.ptp(table, axis=d, keepdims=True) <= error.max(axis=d, keepdims=True)).all())


def _proportional(e: Evidence, d: int) -> bool:
    """Whether the gap is the input times a number that stays the same along a dimension."""
    x = flat((e.x[e.slot],))
    table, gap, doubt = (t.reshape(e.shape) for t in (x, e.got - e.want, _doubt(e)))
    if not x.all():
        return False
    factor = (gap * table).sum(d, keepdims=True) / (table * table).sum(d, keepdims=True)
    return bool((np.abs(gap - factor * table) <= doubt.max(axis=d, keepdims=True)).all())


def _doubt(e: Evidence) -> Array:
    """What want is not known better than."""
    return np.asarray(8 * e.estimate.error + 2 * FIT * e.sizes)
