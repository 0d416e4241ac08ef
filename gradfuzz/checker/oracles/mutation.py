"""Memory that a call must leave alone: inputs, grad_outputs, index tensors, and what was saved for a backward."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from gradfuzz.checker.evaluation import BackwardRaised, backward
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Tensors, materialize, same
from gradfuzz.checker.verdict import Finding, Symptom

# A graph is looked through for so many nodes.
MOST_NODES = 1_000
ON_COPIES = "whoever else holds this tensor sees the change; work on a copy"


def memory_is_kept(run: Run) -> Iterator[Finding]:
    """Neither forward nor backward writes to an input or a grad_output."""
    for stage, name in run.base.written:
        order = 0 if stage == "forward" else 1
        yield _finding(name, stage, order)


def saved_memory_is_kept(run: Run) -> Iterator[Finding]:
    """Neither backward nor double backward writes to what it is handed, to what was saved, or to an index tensor.

    Forward may not write to an index tensor either; a floating one that asks for no gradient may be a running mean,
    which is there to be written to. Whatever else a Function keeps may be its workspace: that is left to whether calls
    repeat.
    """
    if run.base.grads is None:
        return
    subject = run.subject
    # A graph of its own: what is set to zero after its first use shows no second time.
    leaves = subject.leaves()
    arguments = subject.arguments(leaves, as_given=True)
    tensors = [a for a in arguments if isinstance(a, torch.Tensor)]
    constants = [
        (f"input {i}", a)
        for i, a in enumerate(tensors)
        if not any(a is leaf for leaf in leaves) and not a.requires_grad and a.layout is torch.strided
    ]
    before = [a.clone() for _, a in constants]
    outputs = subject.apply(arguments)
    for (name, a), old in zip(constants, before, strict=True):
        if not (a.dtype.is_floating_point or a.dtype.is_complex) and not same(old, a):
            yield _finding(name, "forward", 0)
            return
    watched = [*zip(subject.names, leaves, strict=True), *constants]
    v = tuple(g.detach().clone().requires_grad_(run.second is not None) for g in run.v)
    watched += [(f"grad_output {i}", g) for i, g in enumerate(v)]
    watch = _Watch(watched, outputs)
    try:
        grads = backward(outputs, leaves, v, create_graph=run.second is not None, retain_graph=True)
        if (written := watch.written()) is not None:
            yield _finding(written, "backward", 1)
            return
        if run.second is None:
            return
        roots = [(g, d) for g, d in zip(grads, run.second_along, strict=True) if g is not None and g.requires_grad]
        u = tuple(d.detach().clone() for _, d in roots)
        watched += [(f"grad_output {i} of the double backward", d) for i, d in enumerate(u)]
        watch = _Watch(watched, tuple(g for g, _ in roots))
        results = backward(tuple(g for g, _ in roots), (*leaves, *v), u, retain_graph=True)
    except BackwardRaised:
        return  # reported as what it is
    if (written := watch.written()) is not None:
        yield _finding(written, "double backward", 2)
    else:
        run.again = materialize(results, (*leaves, *v))


def _finding(name: str, stage: str, order: int) -> Finding:
    return Finding(
        Symptom.MUTATION,
        name,
        f"written to by {stage}",
        "unchanged memory",
        order,
        ("", "rev", "rev-rev")[order],
        explanation=ON_COPIES,
    )


class _Watch:
    """Tensors with what they held and how often they had been written to."""

    def __init__(self, named: Sequence[tuple[str, torch.Tensor]], outputs: Tensors) -> None:
        every = [*named, *(("a saved tensor", t) for t in _saved(outputs))]
        self.tensors = [(name, t, t._version, t.detach().clone()) for name, t in every]

    def written(self) -> str | None:
        """Name the first that was written to, by its elements; by its version where those came out the same."""
        for name, t, _, old in self.tensors:
            if not same(old, t.detach()):
                return name
        return next((name for name, t, version, _ in self.tensors if t._version != version), None)


def _saved(outputs: Tensors) -> list[torch.Tensor]:
    """Collect what the nodes of a graph have saved; each memory once."""
    found: dict[tuple[int, tuple[int, ...]], torch.Tensor] = {}
    seen: set[Any] = set()
    nodes: list[Any] = [o.grad_fn for o in outputs]
    while nodes and len(seen) < MOST_NODES:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        values: list[Any]
        try:
            if hasattr(node, "saved_tensors"):
                values = list(node.saved_tensors)
            else:
                values = [getattr(node, name) for name in _names(node.__class__)]
        except RuntimeError:  # freed, or written to in place: the backward itself will say so
            continue
        for t in values:
            if isinstance(t, torch.Tensor) and t.layout is torch.strided and t.numel():
                found.setdefault((t.data_ptr(), tuple(t.shape)), t)
    return list(found.values())


@cache
def _names(kind: Hashable) -> tuple[str, ...]:
    """The names under which a kind of node shows what it saved."""
    return tuple(name for name in dir(kind) if name.startswith("_saved_"))
