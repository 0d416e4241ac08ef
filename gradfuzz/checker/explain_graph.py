"""What the graph of a function shows: values that a custom Function saved, and forward rules that it defines."""

from __future__ import annotations

import torch

from gradfuzz.checker.evaluation import MOST_NODES
from gradfuzz.checker.run import Run
from gradfuzz.checker.tensors import Tensors, is_differentiable

# Far above rounding, far below what would move a mask.
A_LITTLE = 1e-6


def saves_an_intermediate(run: Run) -> bool:
    """Tell whether a custom Function of the graph keeps a bare tensor that changes with the inputs.

    Inputs and outputs come back from `save_for_backward` with a graph; whatever else was saved comes back bare. A
    mask or a constant is bare too, but stays what it is when the inputs move a little.
    """
    x = run.x
    here, there = _bare(run, x), _bare(run, tuple(t * (1 + A_LITTLE) for t in x))
    return any(a.shape == b.shape and not torch.equal(a, b) for a, b in zip(here, there, strict=False))


def _bare(run: Run, x: Tensors) -> list[torch.Tensor]:
    """Give the floating tensors without a graph that custom Functions keep for their backward, in graph order."""
    bare: list[torch.Tensor] = []
    for node in nodes_of(run.context.subject.forward(x)[1]):
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            kept = [*node.saved_tensors, *vars(node).values()]
            bare += [t for t in kept if is_differentiable(t) and t.numel() and not t.requires_grad]
    return bare


def defines_a_jvp(run: Run, x: Tensors) -> bool:
    """Whether a Function of the graph has a forward rule of its own."""
    nodes = nodes_of(run.context.subject.forward(x)[1])
    functions = [getattr(type(node), "_forward_cls", None) for node in nodes]
    return any(f is not None and f.jvp is not torch.autograd.Function.jvp for f in functions)


def nodes_of(outputs: Tensors) -> list[torch.autograd.graph.Node]:
    """Give the nodes of the graph that leads to `outputs`, at most MOST_NODES of them."""
    seen: dict[torch.autograd.graph.Node, None] = {}
    nodes = [o.grad_fn for o in outputs]
    while nodes and len(seen) < MOST_NODES:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen[node] = None
        nodes += [following for following, _ in node.next_functions]
    return list(seen)
