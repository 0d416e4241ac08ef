"""Terms and factors that a derivative may lack: products of what the backward has at hand, by the words for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import numpy as np
import torch

from gradfuzz.checker.column import of_values
from gradfuzz.checker.evaluation import BackwardRaised, First, ForwardRaised
from gradfuzz.checker.explain_evidence import MOST_ELEMENTS, Evidence
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Array, Tensors, flat, segments

# A constant is fitted to these; some forty terms are tried, so that one more number than for a ratio must be met.
FEWEST = 4
# A fitted constant is shown as a plain number where it is one to this many parts.
PLAIN = 1e-7

Named = dict[str, torch.Tensor]


def gap(run: Run, evidence: Sequence[Evidence]) -> str:
    """Say what got - want is a constant multiple of; empty where no term gives all of it."""
    if sum(int(e.wrong.sum()) for e in evidence) < FEWEST or evidence[0].x[evidence[0].slot].dtype.is_complex:
        return ""
    terms = [_terms(run, e) for e in evidence]
    gaps = np.concatenate([(e.got - e.want)[e.wrong] for e in evidence])
    for name in terms[0]:
        if not all(name in t for t in terms):
            continue
        values = [t[name][e.indices] for t, e in zip(terms, evidence, strict=True)]
        term = np.concatenate([v[e.wrong] for v, e in zip(values, evidence, strict=True)])
        constant = _fitted(gaps, term)
        if constant and all(
            e.near(e.want + constant * v)[e.wrong].all() for v, e in zip(values, evidence, strict=True)
        ):
            if abs(constant + 1) <= PLAIN:
                return f"a term is missing: want - got is {name}"
            times = "" if abs(constant - 1) <= PLAIN else f"{constant:.6g} * "
            return f"a term is missing or wrong: got - want is {times}{name}"
    return ""


def _fitted(numbers: Array, term: Array) -> float:
    """The constant that makes a term the numbers, in the least squares; 0 where there is none."""
    with np.errstate(all="ignore"):
        constant = float(numbers @ term / (term @ term))
    # Numbers all alike would be fitted by any term that is alike.
    varied = np.ptp(np.abs(term)) > PLAIN * np.abs(term).max()
    return constant if np.isfinite(constant) and varied else 0.0


def factor(run: Run, evidence: Sequence[Evidence]) -> str:
    """Say what got is want times or divided by, beside a constant; empty where no factor gives all of it."""
    if sum(int(e.wrong.sum()) for e in evidence) < FEWEST or evidence[0].x[evidence[0].slot].dtype.is_complex:
        return ""
    factors = [_factors(run, e) for e in evidence]
    gots = np.concatenate([e.got[e.wrong] for e in evidence])
    for name in factors[0]:
        for power in (-1, 1, -2, 2):
            if not all(name in f for f in factors):
                continue
            with np.errstate(all="ignore"):
                products = [e.want * f[name][e.indices] ** float(power) for f, e in zip(factors, evidence, strict=True)]
                product = np.concatenate([p[e.wrong] for p, e in zip(products, evidence, strict=True)])
                constant = _fitted(gots, product)
                if not constant or not all(
                    e.near(constant * p)[e.wrong].all() for p, e in zip(products, evidence, strict=True)
                ):
                    continue
            squared = f"{name} ** 2" if abs(power) == 2 else name
            times = "" if abs(constant - 1) <= PLAIN else f"{constant:.6g} * "
            if power < 0:
                return f"a factor is missing: got is {times}want / {squared}"
            return f"a factor is too much: got is {times}want * {squared}"
    return ""


def _factors(run: Run, e: Evidence) -> dict[str, Array]:
    """Give what varies with the elements of the input: itself, outputs of its shape, partners that meet it."""
    x = e.x[e.slot]
    found: dict[str, Array] = {run.subject.names[e.slot]: flat((x,))}
    named = [(f"output {k}", y) for k, y in enumerate(e.y)] + list(zip(run.subject.names, e.x, strict=True))
    for name, t in named:
        if name not in found and not t.dtype.is_complex:
            for there in _placed(t, x):
                with suppress(RuntimeError):
                    found[name] = flat((there.expand(x.shape).contiguous(),))
    return found


def _placed(t: torch.Tensor, x: torch.Tensor) -> Iterator[torch.Tensor]:
    """Give a tensor in the places where it meets x: as it is, or with a dimension that was reduced put back."""
    candidates = [t]
    if t.dim() == x.dim() - 1:
        candidates += [t.unsqueeze(d) for d in range(x.dim())]
    for there in candidates:
        with suppress(RuntimeError):
            torch.broadcast_shapes(there.shape, x.shape)
            yield there


def _terms(run: Run, e: Evidence) -> dict[str, Array]:
    """Give terms by name over the elements of the input, the plainest first."""
    x = e.x[e.slot]
    found: dict[str, Array] = {}
    for k, (v, y) in enumerate(zip(e.v, e.y, strict=True)):
        if v.dtype.is_complex:
            continue
        which = "" if len(e.v) == 1 else f" {k}"
        for weights, values in zip(_placed(v, x), _placed(y, x), strict=True):
            for suffix, along in _directions(run, e):
                for name, term in _products(run, e, weights, values, which, along):
                    reduced = _reduced(term, x)
                    if reduced is not None:
                        found.setdefault(name + suffix, reduced)
    if e.u is None:
        for name, term in _atoms(run, e, None, "").items():
            reduced = _reduced(term, x)
            if reduced is not None:
                found.setdefault(f"{name}, whatever the grad_output", reduced)
    return found


def _directions(run: Run, e: Evidence) -> Iterator[tuple[str, torch.Tensor | None]]:
    """Give what a term of a second derivative is differentiated by: nothing at first order, else each input."""
    if e.u is None:
        yield "", None
        return
    x = e.x[e.slot]
    yield "", e.u[e.slot]
    for k, u in enumerate(e.u):
        if k != e.slot and not u.dtype.is_complex:
            for there in _placed(u, x):
                yield f", differentiated again by {run.subject.names[k]}", there


def _reduced(term: torch.Tensor, x: torch.Tensor) -> Array | None:
    """Sum a term over what x was broadcast along; None where it does not fit x."""
    try:
        if term.numel() < x.numel():
            term = term.expand(x.shape)
        return flat((term.sum_to_size(x.shape).contiguous(),))
    except RuntimeError:
        return None


def _atoms(run: Run, e: Evidence, y: torch.Tensor | None, which: str) -> Named:
    """Give what a term is made of beside the grad_output."""
    x, own = e.x[e.slot], run.subject.names[e.slot]
    atoms: Named = {own: x, f"{own} ** 2": x * x, f"{own} ** 3": x**3, f"1 / {own}": 1 / x, f"|{own}|": x.abs()}
    if y is not None and not y.dtype.is_complex:
        name = f"output{which or ' 0'}"
        atoms |= {name: y, f"{name} ** 2": y * y}
        with suppress(RuntimeError):
            atoms[f"{own} * {name}"] = x * y
    for k, p in enumerate(e.x):
        if k != e.slot and not p.dtype.is_complex:
            with suppress(RuntimeError):
                torch.broadcast_shapes(p.shape, x.shape)
                name = run.subject.names[k]
                atoms |= {name: p, f"{name} ** 2": p * p, f"{own} * {name}": x * p}
    return atoms


def _products(
    run: Run, e: Evidence, v: torch.Tensor, y: torch.Tensor, which: str, along: torch.Tensor | None
) -> Iterator[tuple[str, torch.Tensor]]:
    """Give grad_output times each atom, and the sums of such products over a dimension, times an atom again."""
    x = e.x[e.slot]
    weights = f"grad_output{which}"
    with suppress(RuntimeError):
        v = v if along is None else v * along
        spread = v.expand(torch.broadcast_shapes(v.shape, x.shape))
        atoms = _atoms(run, e, y, which)
        yield weights, spread
        for name, atom in atoms.items():
            with suppress(RuntimeError):
                yield f"{weights} * {name}", v * atom
        plain = {k: a for k, a in atoms.items() if "*" not in k and "/" not in k and "|" not in k}
        inner = [(weights, spread), *((f"{weights} * {k}", spread * a) for k, a in plain.items())]
        for name, term in inner:
            for d in (*range(term.dim()), None):
                where = "" if d is None else f" over dimension {d}"
                dims = tuple(range(term.dim())) if d is None else (d,)
                if all(term.shape[i] < 2 for i in dims):
                    continue
                total = term.sum(dims, keepdim=True)
                text = f"the sum of {name}{where}"
                yield text, total.expand(term.shape)
                for other, atom in plain.items():
                    yield f"{other} * {text}", total * atom


def unreduced(run: Run, e: Evidence) -> Array | None:
    """Give the gradient that an input would have were it expanded to its output's shape; None where it is too large."""
    context, output = run.context, e.y[0]
    if output.numel() > MOST_ELEMENTS or e.u is not None or output.dtype.is_complex:
        return None
    wide: Tensors = tuple(t.expand(output.shape).contiguous() if k == e.slot else t for k, t in enumerate(e.x))
    try:
        values = context.subject.value(wide)
    except (ForwardRaised, BackwardRaised):
        return None
    # No gradient is asked for: the function may refuse what its backward was not meant for.
    first = First(values, (None,) * len(wide), wide)
    part = segments(wide)[e.slot]
    weights = flat(e.v)
    column: Callable[[int], float] = lambda k: float(  # noqa: E731
        of_values(context, wide, e.v, first, part.start + k)[0].value @ weights
    )
    return np.array([column(k) for k in range(output.numel())]).reshape(output.shape)
