"""What a check costs, against torch's own: ``python -m benchmarks.throughput``."""

from __future__ import annotations

import os
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

# Before torch is imported: a case is too small for threads, and they make the times vary.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HYPOTHESIS_NO_PLUGINS", "1")

import click
import torch

import gradfuzz
from gradfuzz import strategies as gst

# Each time is the median of so many seconds of repetitions, and of a few at least.
SECONDS = 2.0
FEWEST = 3

Inputs = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Subject:
    """A function whose check is timed."""

    name: str
    function: Callable[..., torch.Tensor]
    shapes: tuple[tuple[int, ...], ...]

    def inputs(self) -> Inputs:
        """Make fresh inputs, the same each time."""
        generator = torch.Generator().manual_seed(0)
        return tuple(
            torch.randn(shape, dtype=torch.float64, generator=generator).requires_grad_() for shape in self.shapes
        )


SUBJECTS = (
    Subject("tanh(x @ w), 4x4", lambda x, w: torch.tanh(x @ w), ((4, 4), (4, 4))),
    Subject("x * sigmoid(x), 8", lambda x: x * torch.sigmoid(x), ((8,),)),
    Subject("x * sigmoid(x), 512", lambda x: x * torch.sigmoid(x), ((512,),)),
    Subject("softmax, 8x16", lambda x: torch.softmax(x, -1), ((8, 16),)),
    Subject("layer_norm, 4x32", lambda x: torch.nn.functional.layer_norm(x, (32,)), ((4, 32),)),
)


def milliseconds(call: Callable[[], Any], *, seconds: float = SECONDS) -> float:
    """Give the median time of a call in milliseconds."""
    call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < FEWEST or time.perf_counter() < end:
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return 1e3 * statistics.median(times)


def torch_checks(subject: Subject, *, fast: bool) -> Callable[[], Any]:
    """Give torch's own checks of both orders as one call."""
    inputs = subject.inputs()

    def call() -> None:
        torch.autograd.gradcheck(subject.function, inputs, fast_mode=fast)
        torch.autograd.gradgradcheck(subject.function, inputs, fast_mode=fast)

    return call


def row(subject: Subject, *, seconds: float) -> str:
    """Time the checks of one function and show them on a line."""
    inputs = subject.inputs()
    ours = milliseconds(lambda: gradfuzz.check(subject.function, inputs), seconds=seconds)
    slow = milliseconds(torch_checks(subject, fast=False), seconds=seconds)
    fast = milliseconds(torch_checks(subject, fast=True), seconds=seconds)
    return f"{subject.name:<22} {ours:>9.2f} {slow:>12.2f} {fast:>12.2f} {ours / slow:>12.2f} {ours / fast:>12.2f}"


def cases_a_second(subject: Subject, *, seconds: float) -> float:
    """Give how many cases a campaign of one process draws and judges in a second."""
    names = "xw"[: len(subject.shapes)]
    drawn = {
        name: gst.tensors(" ".join(str(side) for side in shape))
        for name, shape in zip(names, subject.shapes, strict=True)
    }
    target = gradfuzz.Target(subject.function, drawn, subject.name)
    result = gradfuzz.fuzz(target, seconds=seconds, seed=0, corpus=None)
    return result.cases / result.seconds


@click.command()
@click.option("--seconds", default=SECONDS, show_default=True, help="For each number.")
def main(*, seconds: float) -> None:
    """Time one check of several functions, and count the cases a campaign judges in a second."""
    # torch's gradcheck warns of float32 only; nothing here depends on warnings.
    warnings.simplefilter("ignore")
    click.echo(
        f"{'milliseconds':<22} {'check':>9} {'torch slow':>12} {'torch fast':>12} {'ratio slow':>12} {'ratio fast':>12}"
    )
    for subject in SUBJECTS:
        click.echo(row(subject, seconds=seconds))
    click.echo()
    click.echo(f"{'cases a second':<22}")
    for subject in SUBJECTS:
        click.echo(f"{subject.name:<22} {cases_a_second(subject, seconds=max(seconds, 3.0)):>9.0f}")


if __name__ == "__main__":
    main()
