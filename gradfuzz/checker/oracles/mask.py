"""Which inputs ask for a gradient: the others' gradients do not depend on it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import torch

from gradfuzz.checker.answers import Answers
from gradfuzz.checker.evaluation import First, backward, double_backward
from gradfuzz.checker.oracles.metamorphic import compare
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Array, Tensors, segments
from gradfuzz.checker.verdict import Finding, Symptom

# Every input alone is tried for so many of them; a function of more is tried at the first ones.
MOST_ALONE = 4


def mask_is_irrelevant(run: Run) -> Iterator[Finding]:
    """A gradient does not depend on whether the other inputs ask for one; nor does a second derivative.

    One input, by the seed, is tried alone at both orders; all but that one, and the others alone, at the first.
    """
    count = len(run.subject.wrt)
    if count < 2 or run.base.grads is None:
        return
    want = run.given
    chosen = run.seed % count
    alone, rest = (chosen,), tuple(k for k in range(count) if k != chosen)
    first_order = replace(want, hessian_u=None, jacobian_u=None)
    part = first_order if want.hessian_u is None else _everything(run, alone, second=True)
    if not part.finite:  # the others stand still, which is 0 * inf where their slope is infinite
        part = first_order
    tries = [(alone, part), (rest, first_order)]
    # Of two inputs, all but one is the other one alone.
    tries += [((k,), first_order) for k in range(min(count, MOST_ALONE)) if k != chosen and count > 2]
    for subset, reference in tries:
        names = " and ".join(run.subject.names[k] for k in subset)
        asks = "alone asks" if len(subset) == 1 else "ask"
        found = list(
            compare(
                run,
                Symptom.REQUIRES_GRAD_MASK,
                reference,
                partial(_masked, run, subset, reference),
                again=partial(_everything, run, subset, second=reference.hessian_u is not None),
                explanation=f"when {names} {asks} for a gradient; another {{what}} when all do",
            )
        )
        yield from found
        if found:
            return


def _only(u: Tensors, subset: Sequence[int]) -> Tensors:
    return tuple(d if k in subset else torch.zeros_like(d) for k, d in enumerate(u))


def _everything(run: Run, subset: Sequence[int], *, second: bool) -> Answers:
    """Differentiate the base graph, in which every input asks for a gradient, along the part of `subset`."""
    leaves, outputs = run.base.leaves, run.base.graph
    if not second:
        return Answers.of(First(outputs, backward(outputs, leaves, run.v, retain_graph=True), leaves))
    u = _only(run.second_along, subset)
    return Answers.of(double_backward(leaves, outputs, run.v, u, retain_graph=True))


def _masked(run: Run, subset: Sequence[int], reference: Answers) -> Answers:
    """Run the function while only `subset` asks for gradients; what it says nothing about is taken over."""
    wanted = tuple(k in subset for k in range(len(run.subject.wrt)))
    leaves, outputs = run.subject.forward(None, wanted=wanted)
    kept = tuple(leaf for leaf, flag in zip(leaves, wanted, strict=True) if flag)
    if reference.hessian_u is None:
        got = Answers.of(First(outputs, backward(outputs, kept, run.v), kept))
    else:
        u = tuple(d for d, flag in zip(run.second_along, wanted, strict=True) if flag)
        got = Answers.of(double_backward(kept, outputs, run.v, u))
    places = [part for part, flag in zip(segments(run.subject.wrt), wanted, strict=True) if flag]

    def filled(mine: Array, theirs: Array) -> Array:
        full = theirs.copy()
        start = 0
        for place in places:
            size = place.stop - place.start
            full[place] = mine[start : start + size]
            start += size
        return full

    hessian = got.hessian_u
    if hessian is not None and reference.hessian_u is not None:
        hessian = filled(hessian, reference.hessian_u)
    return replace(got, gradients=filled(got.gradients, reference.gradients), hessian_u=hessian)
