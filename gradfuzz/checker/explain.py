"""What kind of mistake a wrong derivative looks like: a sentence where the evidence is unambiguous, else nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Concatenate, ParamSpec

import numpy as np

from gradfuzz.checker import explain_evidence, explain_kind, explain_region
from gradfuzz.checker.direction import EXPLAINING
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised
from gradfuzz.checker.explain_evidence import Evidence
from gradfuzz.checker.explain_graph import defines_a_jvp, saves_an_intermediate
from gradfuzz.checker.naming import one_line
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Tensors, flat, segments

# Roundings by which a recorded and an unrecorded backward may differ, as the exact identity allows.
GRAPH_ROUNDINGS = 64

P = ParamSpec("P")


def _asked(explanation: Callable[Concatenate[Run, P], str]) -> Callable[Concatenate[Run, P], str]:
    """Say nothing where the run is not to be explained: while a case shrinks, nobody reads it."""

    @wraps(explanation)
    def said(run: Run, /, *args: P.args, **kwargs: P.kwargs) -> str:
        if not run.explain:
            return ""
        try:
            return explanation(run, *args, **kwargs)
        except Exception as error:  # the finding stands, whatever goes wrong in explaining it; and that is said
            return f"gradfuzz failed to explain it, an error of its own: {one_line(error)}"

    return said


@_asked
def first_order(run: Run, x: Tensors, suspects: list[int], k: int) -> str:
    """Explain a wrong gradient of the input that holds element k of `flat(x)`.

    Args:
        run: The check under way.
        x: The point at which it was found.
        suspects: Elements looked at, as places in `flat(x)`.
        k: The element whose gradient is wrong most clearly.
    """
    slot = _slot(x, k)
    rng = run.rng(EXPLAINING)
    return _said(run, explain_evidence.first_order(run, x, slot, suspects, rng))


def _slot(x: Tensors, k: int) -> int:
    return next(i for i, part in enumerate(segments(x)) if part.start <= k < part.stop)


def _said(run: Run, evidence: Sequence[Evidence]) -> str:
    """Put kind and region into one sentence; both must hold wherever the fault shows, and it must show here."""
    showing = [e for e in evidence if e.wrong.any()]
    if not any(e.here for e in showing):
        return ""
    region = explain_region.of(run, [e for e in evidence if (e.wrong | e.right).any()])
    kind = explain_kind.of(run, showing)
    if region and not kind.whole:
        return f"{kind.words or 'wrong'} {region}, and only there"
    return kind.words


@_asked
def second_order(run: Run, x: Tensors, suspects: list[int], k: int) -> str:
    """Explain a wrong second derivative whose first is right, by what the graph and the numbers show."""
    slot = _slot(x, k)
    rng = run.rng(EXPLAINING)
    if saves_an_intermediate(run):
        return "the backward uses a value that forward computed and saved, which counts as a constant; compute it anew"
    if block := _block(run, explain_evidence.by_block(run, x, slot, suspects, rng)):
        return block
    words = _said(run, explain_evidence.second_order(run, x, slot, suspects, rng))
    if words.startswith(ZERO):
        return f"{words}; the first derivative is right, so a term of the backward carries no graph"
    return f"the first derivative is right, the second is {words}" if words else ""


ZERO = "zero where it should not be"


def _block(run: Run, evidence: Sequence[Evidence]) -> str:
    """Tell of a function of several inputs which of them the gradient has lost, and which not."""
    lost, kept = [], []
    for e in evidence:
        moved = next((i for i, t in enumerate(e.u or ()) if flat((t,)).any()), None)
        if moved is None or not (e.wrong | e.right).any():
            continue
        name = run.subject.names[moved]
        if e.wrong.any() and not e.right.any() and not e.got.any():
            lost.append(name)
        elif not e.wrong.any():
            kept.append(name)
        else:
            return ""
    if not (lost and kept):
        return ""
    return (
        f"zero when differentiated again by {' or '.join(lost)}, right by {' or '.join(kept)}: "
        f"the backward uses {' and '.join(lost)} without its graph"
    )


@_asked
def lost(run: Run) -> str:
    """Explain a gradient whose graph has lost some of its grad_output: of which input, and at which elements."""
    if text := recorded(run, run.x, run.weights):
        return text
    for slot, name in enumerate(run.subject.names):
        if name in run.detached:
            continue
        evidence = explain_evidence.carried(run, run.x, slot, run.rng(EXPLAINING))
        if words := _said(run, evidence):
            return f"what carries a graph in the gradient of {name} is {words}"
    return ""


@_asked
def recorded(run: Run, x: Tensors, v: Tensors) -> str:
    """Tell whether a gradient with create_graph differs from that without, which is known to be right."""
    subject = run.context.subject
    try:
        without, recorded = (flat(subject.gradient(x, v, create_graph=graph).gradients) for graph in (False, True))
    except (ForwardRaised, BackwardRaised):
        return ""
    largest = np.abs(without).max(initial=0.0)
    differs = np.abs(recorded - without).max(initial=0.0) > GRAPH_ROUNDINGS * run.context.eps * largest
    return "wrong with create_graph=True and right without" if differs else ""


@_asked
def by_mode(run: Run, mode: str, x: Tensors) -> str:
    """Explain a second derivative that forward mode gets wrong and double backward right."""
    if mode == "fwd-fwd" and defines_a_jvp(run, x):
        return (
            "double backward is right; torch loses the outer tangent of any Function that defines a jvp, "
            "so this is not for the Function to mend"
        )
    part = {"fwd-rev": "the backward", "rev-fwd": "the forward rule", "fwd-fwd": "the forward rule"}[mode]
    return f"double backward is right; {part} uses a value that counts as a constant in this mode, or a wrong rule"
