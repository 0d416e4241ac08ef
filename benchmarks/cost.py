"""What a check costs in double backwards of the function it checks: ``python -m benchmarks.cost``."""

from __future__ import annotations

import math
import os
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

# Before torch is imported: most of these functions are too small for threads, which make the times vary.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import click
import torch
from torch.autograd import Function
from torch.nn import functional as F

import gradfuzz

# Elements of the first input. Squares, so that a matrix can have them.
SIZES = (4, 16, 256, 4096)
# torch's slow mode takes two evaluations an element and order, of vectors as long: beyond this it takes minutes.
LARGEST_FOR_SLOW = 16
# Where slow mode is compared all the same: two matrices of this side.
SIDE_FOR_SLOW = 24
# What a case of a campaign and a direct check may cost, in double backwards, and how much faster than slow mode a
# check of two 24x24 inputs must be.
MOST_SCREEN, MOST_CHECK, LEAST_SPEEDUP = 10.0, 30.0, 100.0
# A case's seed draws which oracles it runs. Sixteen of these odd multiples ask for each of them some times.
SEEDS = tuple(2654435761 * k % 2**32 | 1 for k in range(1, 17))
# The median of so many repetitions, all contestants in turn within each; a repetition of a contestant takes as many
# calls as fill the time, so that the clock's own resolution and the cache's state of the others do not show.
REPETITIONS = 5
LEAST_SECONDS = 0.01
# A step through the classes that meets all of them; what layer_norm adds to a variance by default.
LABELS, NORM_EPS = 7, 1e-5

Inputs = tuple[torch.Tensor, ...]
Shapes = tuple[tuple[int, ...], ...]


class Softplus(Function):
    """log(1 + exp(x)) with its own backward and a backward of that."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        """Keep the input."""
        ctx.save_for_backward(x)
        return torch.log1p(torch.exp(x))

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        """Multiply by the logistic function."""
        x: torch.Tensor
        (x,) = ctx.saved_tensors
        return g * torch.sigmoid(x)


@dataclass(frozen=True, slots=True)
class Subject:
    """A function whose check is timed.

    Attributes:
        name: How the table calls it.
        function: The function.
        shapes: The shapes of its inputs, given the elements of the first and their square root.
    """

    name: str
    function: Callable[..., torch.Tensor]
    shapes: Callable[[int, int], Shapes]

    def inputs(self, size: int) -> Inputs:
        """Make normal draws that ask for a gradient, the same each time."""
        generator = torch.Generator().manual_seed(size)
        return tuple(
            torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_()
            for shape in self.shapes(size, math.isqrt(size))
        )


def _layer_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Normalise rows by hand: torch's own layer_norm is wrong in forward over forward mode, and found to be."""
    var, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
    return (x - mean) * torch.rsqrt(var + NORM_EPS) * w + b


def _cross_entropy(x: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(x, torch.arange(len(x)) * LABELS % len(x))


SUBJECTS = (
    Subject("tanh(x @ w)", lambda x, w: torch.tanh(x @ w), lambda n, k: ((k, k), (k, k))),
    Subject("x * sigmoid(x)", lambda x: x * torch.sigmoid(x), lambda n, k: ((n,),)),
    Subject("softmax", lambda x: torch.softmax(x, -1), lambda n, k: ((k, k),)),
    Subject("layer norm", _layer_norm, lambda n, k: ((k, k), (k,), (k,))),
    Subject("logsumexp", lambda x: torch.logsumexp(x, -1), lambda n, k: ((k, k),)),
    Subject("cumprod", lambda x: torch.cumprod(x, -1), lambda n, k: ((k, k),)),
    Subject("conv1d", lambda x, w: F.conv1d(x, w, padding=1), lambda n, k: ((1, 2, n // 2), (2, 2, 3))),
    Subject("a Function", Softplus.apply, lambda n, k: ((n,),)),
    Subject("cross_entropy", _cross_entropy, lambda n, k: ((k, k),)),
    Subject("gelu MLP", lambda x, v, w: F.gelu(x @ v) @ w, lambda n, k: ((k, k), (k, k), (k, k))),
)


@dataclass(frozen=True, slots=True)
class Contestant:
    """Something that is timed: one turn of `call`, which stands for `turns` of what is meant."""

    call: Callable[[], Any]
    turns: int = 1


def seconds(contestants: Sequence[Contestant], *, repetitions: int = REPETITIONS) -> list[float]:
    """Give the median processor time of each, all of them timed in turn within every repetition."""
    counts = []
    for contestant in contestants:
        contestant.call()
        began = time.process_time()
        contestant.call()
        counts.append(max(1, math.ceil(LEAST_SECONDS / max(time.process_time() - began, 1e-9))))
    times: list[list[float]] = [[] for _ in contestants]
    for _ in range(repetitions):
        for contestant, count, row in zip(contestants, counts, times, strict=True):
            began = time.process_time()
            for _ in range(count):
                contestant.call()
            row.append((time.process_time() - began) / (count * contestant.turns))
    return [statistics.median(row) for row in times]


def double_backward(function: Callable[..., torch.Tensor], inputs: Inputs) -> Callable[[], Any]:
    """Give the unit of cost: forward, backward, and the backward of <G, u> by inputs and grad_outputs."""
    output = function(*inputs)
    generator = torch.Generator().manual_seed(1)
    v, *u = (torch.randn(t.shape, dtype=t.dtype, generator=generator) for t in (output, *inputs))

    def call() -> None:
        leaves = tuple(x.detach().clone().requires_grad_() for x in inputs)
        weights = v.clone().requires_grad_()
        grads = torch.autograd.grad(function(*leaves), leaves, weights, create_graph=True)
        torch.autograd.grad(grads, (*leaves, weights), u, allow_unused=True)

    return call


def cases(function: Callable[..., torch.Tensor], inputs: Inputs) -> Contestant:
    """Give what a campaign's cases cost: checks whose seeds draw what else they run."""

    def call() -> None:
        for seed in SEEDS:
            gradfuzz.check(function, inputs, seed=seed, thorough=False)

    return Contestant(call, len(SEEDS))


def direct(function: Callable[..., torch.Tensor], inputs: Inputs) -> Contestant:
    """Give a check of everything."""
    return Contestant(lambda: gradfuzz.check(function, inputs))


def peer(function: Callable[..., torch.Tensor], inputs: Inputs, *, fast: bool) -> Contestant:
    """Give torch's own checks of both orders; what they say does not matter here."""

    def call() -> None:
        torch.autograd.gradcheck(function, inputs, fast_mode=fast, raise_exception=False)
        torch.autograd.gradgradcheck(function, inputs, fast_mode=fast, raise_exception=False)

    return Contestant(call)


def calls(make: Callable[[Callable[..., torch.Tensor], Inputs], Contestant], subject: Subject, inputs: Inputs) -> float:
    """Count how often a contestant calls the function."""
    count = 0

    def counted(*x: torch.Tensor) -> torch.Tensor:
        nonlocal count
        count += 1
        return subject.function(*x)

    contestant = make(counted, inputs)
    count = 0
    contestant.call()
    return count / contestant.turns


class Of(NamedTuple):
    """One number of each contestant; nan of one that was not asked.

    Attributes:
        case: Of a campaign's case.
        check: Of a direct check.
        fast: Of torch's fast mode, both orders.
        slow: Of torch's slow mode, both orders.
    """

    case: float
    check: float
    fast: float
    slow: float = math.nan

    def show(self, width: int, form: str) -> str:
        """Write the numbers in columns, a dash for each that is missing."""
        return "".join(f"{'-':>{width}}" if math.isnan(x) else f"{x:>{width}{form}}" for x in self)


@dataclass(frozen=True, slots=True)
class Row:
    """The cost of checking one function at one size.

    Attributes:
        name: The function.
        size: Elements of its first input.
        unit: Seconds of one double backward.
        ratios: Costs, in double backwards.
        calls: How often the function was called.
        verdict: What a direct check says; the cost of anything but a pass is the cost of finding out more.
    """

    name: str
    size: int
    unit: float
    ratios: Of
    calls: Of
    verdict: str = "pass"

    def __str__(self) -> str:
        """Show the row on one line."""
        remark = "" if self.verdict == "pass" else f"  verdict: {self.verdict}"
        numbers = f"{self.ratios.show(9, '.1f')}  {self.calls.show(8, '.0f')}"
        return f"{self.name:<16}{self.size:>6}{1e6 * self.unit:>10.0f}{numbers}{remark}"


HEADING = (
    f"{'function':<16}{'size':>6}{'unit, us':>10}{'case':>9}{'check':>9}{'fast':>9}{'slow':>9}  "
    f"{'case':>8}{'check':>8}{'fast':>8}{'slow':>8}"
)


def row(subject: Subject, size: int, *, slow: bool, repetitions: int = REPETITIONS) -> Row:
    """Measure one function at one size."""
    inputs = subject.inputs(size)
    makers: list[Callable[[Callable[..., torch.Tensor], Inputs], Contestant]] = [
        cases,
        direct,
        lambda f, x: peer(f, x, fast=True),
    ]
    if slow:
        makers.append(lambda f, x: peer(f, x, fast=False))
    unit = Contestant(double_backward(subject.function, inputs))
    contestants = [make(subject.function, inputs) for make in makers]
    first, *times = seconds([unit, *contestants], repetitions=repetitions)
    counts = [calls(make, subject, inputs) for make in makers]
    verdict = gradfuzz.check(subject.function, inputs).status.value
    return Row(subject.name, size, first, Of(*(t / first for t in times)), Of(*counts), verdict)


def median(rows: Sequence[Row], name: str, size: int) -> Row:
    """Give the medians over functions as a row."""
    ratios = Of(*(statistics.median(column) for column in zip(*(r.ratios for r in rows), strict=True)))
    counts = Of(*(statistics.median(column) for column in zip(*(r.calls for r in rows), strict=True)))
    return Row(name, size, statistics.median(r.unit for r in rows), ratios, counts)


def slow_mode_line() -> str:
    """Time a check of two matrices against torch's slow mode, which evaluates the function by element."""
    subject, size = SUBJECTS[0], SIDE_FOR_SLOW**2
    inputs = subject.inputs(size)
    ours = seconds([direct(subject.function, inputs), cases(subject.function, inputs)])
    slow = peer(subject.function, inputs, fast=False)
    began = time.process_time()
    slow.call()
    theirs = time.process_time() - began
    return (
        f"two {SIDE_FOR_SLOW}x{SIDE_FOR_SLOW} inputs, {subject.name}: slow mode takes {theirs:.1f} s, "
        f"{theirs / ours[0]:.0f} times a check ({1e3 * ours[0]:.1f} ms; wanted {LEAST_SPEEDUP:.0f} times), "
        f"{theirs / ours[1]:.0f} times a case ({1e3 * ours[1]:.1f} ms)"
    )


@click.command()
@click.option("--only", multiple=True, help="Name of a function; repeatable.")
@click.option("--sizes", default=",".join(map(str, SIZES)), show_default=True, help="Elements of the first input.")
@click.option("--repetitions", default=REPETITIONS, show_default=True, help="Of which the median is shown.")
@click.option("--slow/--no-slow", default=True, show_default=True, help="Whether torch's slow mode is timed.")
def main(*, only: tuple[str, ...], sizes: str, repetitions: int, slow: bool) -> None:
    """Measure what a case of a campaign and a direct check cost, in double backwards of the function they check."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    known = [subject.name for subject in SUBJECTS]
    if unknown := [name for name in only if name not in known]:
        raise click.ClickException(f"--only {unknown[0]!r} is no function here; known are {', '.join(known)}")
    try:
        wanted = [int(size) for size in sizes.split(",")]
    except ValueError:
        raise click.ClickException(f"--sizes {sizes!r} is no list of numbers; give some such as 4,256") from None
    if any(size < SIZES[0] for size in wanted):
        raise click.ClickException(f"--sizes {sizes!r}: the smallest size is {SIZES[0]}")
    subjects = [subject for subject in SUBJECTS if not only or subject.name in only]
    click.echo("cost in double backwards of the function, then calls of the function")
    click.echo(HEADING)
    rows: list[Row] = []
    for size in wanted:
        here = []
        for subject in subjects:
            here.append(row(subject, size, slow=slow and size <= LARGEST_FOR_SLOW, repetitions=repetitions))
            click.echo(str(here[-1]))
        click.echo(str(median(here, "median", size)))
        rows += here
    everything = median(rows, "all sizes", max(wanted))
    click.echo(f"median of all: a case {everything.ratios.case:.1f} double backwards (wanted {MOST_SCREEN:.0f}),")
    click.echo(f"               a direct check {everything.ratios.check:.1f} (wanted {MOST_CHECK:.0f})")
    if slow:
        click.echo(slow_mode_line())


if __name__ == "__main__":
    main()
