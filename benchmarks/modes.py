"""Where torch's modes of differentiation disagree with one another: ``python -m benchmarks.modes``.

No differences are taken: along one direction, forward mode and the three second derivatives that use it are compared
with double backward. It takes seconds for the whole catalogue, and says who disagrees, not who is right: of the four,
double backward is the one that torch's own tests look at most.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch

import click
import numpy as np
import torch

from benchmarks import catalogue
from benchmarks.explained import explained
from gradfuzz.checker.direction import DIRECTIONS, GRAD_OUTPUTS, NESTED, generator, scales, signs_and_sizes
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Second, Subject
from gradfuzz.checker.nested import MODES, Nested, along, never_promised
from gradfuzz.checker.tensors import Array, flat, unflat

SAMPLES = 10
# How a first derivative by forward mode is called beside the three modes of the second.
FIRST = "fwd"


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One number that two modes give differently.

    Attributes:
        name: The catalogue's entry.
        index: Which of its samples.
        mode: ``fwd``, or a mode of the second derivative.
        got: By that mode, where the gap is largest.
        want: By reverse mode.
    """

    name: str
    index: int
    mode: str
    got: float
    want: float

    @property
    def key(self) -> str:
        """Name it as the explanations do."""
        if not np.isfinite(self.got):
            symptom = "nonfinite"
        else:
            symptom = "forward-mode" if self.mode == FIRST else "wrong-second-derivative"
        return f"{self.name}|{symptom}|{1 if self.mode == FIRST else 2}|{self.mode}"


def compare(call: catalogue.Call, *, seed: int) -> Iterator[Disagreement | tuple[str, BaseException]]:
    """Compare every mode that a call has with double backward; a mode that raises is given with what it raised.

    Raises:
        ForwardRaised: The call refuses its own arguments.
        BackwardRaised: It has no double backward.
    """
    subject = Subject(call.function, call.arguments, seed=seed)
    subject.random = True  # every call from the same seed: cheaper than to find out whether it draws
    x = subject.point
    outputs = subject.value(x)
    s = scales(x)
    u_flat, w_flat = (signs_and_sizes(generator(seed, purpose), len(s)) * s for purpose in (DIRECTIONS, NESTED))
    v = unflat(signs_and_sizes(generator(seed, GRAD_OUTPUTS), len(flat(outputs))), outputs)
    u, w = unflat(u_flat, x), unflat(w_flat, x)
    second = subject.second(x, v, u)
    nested = along(subject, x, v, u, w)
    for mode, error in nested.missing.items():
        if not never_promised(error):
            yield mode, error
    # Ways to the same number round differently, by thousands of roundings in a decomposition; a wrong rule is nearly
    # always off by more than half of the digits. They are those of the least precise tensor there is.
    share = float(np.sqrt(max(torch.finfo(t.dtype).eps for t in (*x, *v))))
    for mode, got, want, scale in _pairs(second, nested, flat(v), w_flat, s):
        excess = np.abs(got - want) - share * scale
        if want.size and np.isfinite(want).all() and not excess.max() <= 0:  # so written that nan disagrees
            k = int(excess.argmax()) if np.isfinite(got).all() else int(np.flatnonzero(~np.isfinite(got))[0])
            yield Disagreement(call.name, call.index, mode, float(got[k]), float(want[k]))


def _pairs(second: Second, nested: Nested, v: Array, w: Array, s: Array) -> Iterator[tuple[str, Array, Array, Array]]:
    """Give by mode what it gave, what double backward gave, and the size that rounding is a share of.

    What cancels to nothing on the way to a derivative was as large as the values are, over the scale of the inputs.
    """
    p, hessian, g = flat(second.jacobian_u), flat(second.hessian_u), flat(second.gradients)
    values = np.maximum(_largest(flat(second.values)), s.max(initial=0.0))
    # An element that is not finite has scale 0 and is not moved.
    natural = values * _largest(v) / np.where(s > 0, s, np.inf) + _largest(hessian) + _largest(g)
    if nested.tangent is not None:
        yield FIRST, flat(nested.tangent), p, np.full(len(p), values + _largest(p))
    for mode in MODES[:2]:
        got = nested.second(mode)
        if got is not None:
            yield mode, flat(got), hessian, natural
    if nested.fwd_fwd is not None:
        sums = np.array([flat(nested.fwd_fwd) @ v]), np.array([hessian @ w])
        yield "fwd-fwd", *sums, np.array([natural @ np.abs(w)])


def _largest(a: Array) -> float:
    return float(np.abs(a[np.isfinite(a)]).max(initial=0.0))


@click.command(context_settings={"max_content_width": 110})
@click.option("--samples", default=SAMPLES, show_default=True, help="Of each entry.")
@click.option("--only", default="*", help="A pattern of entries.")
@click.option("--dtype", "name", default="float64", show_default=True, help="By torch's name.")
def main(*, samples: int, only: str, name: str) -> None:
    """Compare the modes of every entry of torch's op catalogue, and print the first disagreement of each."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    dtype = getattr(torch, name)
    began = time.process_time()
    counts: Counter[str] = Counter()
    found: dict[str, tuple[Disagreement, int]] = {}
    raised: dict[tuple[str, str], str] = {}
    for entry in catalogue.entries(dtype):
        if not fnmatch(catalogue.name_of(entry), only):
            continue
        counts["entries"] += 1
        for call in catalogue.calls(entry, dtype, samples):
            counts["calls"] += 1
            try:
                for one in compare(call, seed=call.index + 1):
                    if isinstance(one, Disagreement):
                        first, times = found.get(one.key, (one, 0))
                        found[one.key] = (first, times + 1)
                    else:
                        raised.setdefault((call.name, one[0]), f"{type(one[1]).__name__}: {one[1]}".splitlines()[0])
            except (ForwardRaised, BackwardRaised) as refusal:
                counts["refused"] += 1
                raised.setdefault((call.name, "rev-rev"), f"{type(refusal.error).__name__}: {refusal.error}"[:90])
    for (op, mode), text in sorted(raised.items()):
        click.echo(f"raises    {op:<42} {mode:<8} {text[:90]}")
    for key, (first, times) in found.items():
        entry = explained(key)
        why = "UNEXPLAINED" if entry is None else entry.reason
        where = f"{first.mode:<8} sample {first.index:>3}"
        click.echo(f"disagrees {first.name:<42} {where} got {first.got:.6g}, want {first.want:.6g} ({times}): {why}")
    unknown = [key for key in found if explained(key) is None]
    ops = len({first.name for first, _ in found.values()})
    click.echo(
        f"{counts['entries']} entries, {counts['calls']} calls, {counts['refused']} without double backward; "
        f"{len(found)} disagreements of {ops} ops, {len(unknown)} unexplained; {time.process_time() - began:.0f} s"
    )
    sys.exit(bool(unknown))


if __name__ == "__main__":
    main()
