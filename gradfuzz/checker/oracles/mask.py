"""Which inputs ask for a gradient: the others' gradients do not depend on it."""

from __future__ import annotations

from collections.abc import Iterator

from gradfuzz.checker.evaluation import Tensors
from gradfuzz.checker.oracles.metamorphic import compare_gradients
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

# Every input alone is tried for so many of them; a function of more is tried at the first ones.
MOST_ALONE = 4


def mask_is_irrelevant(run: Run) -> Iterator[Finding]:
    """A gradient does not depend on whether the other inputs ask for one."""
    count = len(run.subject.wrt)
    if count < 2 or run.base.grads is None:
        return
    point = run.subject.point
    everything = run.gradients_at(point)
    for i in range(min(count, MOST_ALONE)):
        wanted = tuple(k == i for k in range(count))

        def alone(i: int = i, wanted: tuple[bool, ...] = wanted) -> Tensors:
            gradient = run.subject.gradient(point, run.v, wanted=wanted).gradients[i]
            return tuple(gradient if k == i else g for k, g in enumerate(everything))

        found = list(
            compare_gradients(
                run,
                Symptom.REQUIRES_GRAD_MASK,
                everything,
                alone,
                explanation=f"when {run.subject.names[i]} alone asks for a gradient; another value when all do",
            )
        )
        yield from found
        if found:
            return
