"""A differentiable map with the point it is looked at, and its gradient as another such map."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD  # as torch's documentation calls it
from torch.utils import _pytree as pytree

from gradfuzz.checker.direction import GRAD_OUTPUTS, generator, generic
from gradfuzz.checker.evaluation import Subject
from gradfuzz.checker.tensors import Tensors, dense, is_differentiable, materialize
from gradfuzz.checker.verdict import Status, Verdict


@dataclass(frozen=True, slots=True)
class Map:
    """A differentiable map and the point it is looked at.

    Attributes:
        func: Called as ``func(*inputs)``.
        inputs: The arguments; those that ask for a gradient are differentiated.
        order: 1 for a function; 2 for its gradient, whose derivative is a second one.
    """

    func: Callable[..., Any]
    inputs: tuple[Any, ...]
    order: int = 1

    def forward(self) -> tuple[Tensors, Tensors]:
        """Call the map once on fresh leaves; give them and the outputs, and leave torch's generator as it was found.

        Raises:
            ForwardRaised: The map refuses its inputs.
        """
        with torch.random.fork_rng(devices=[]):
            return Subject(self.func, self.inputs).forward()

    def gradient(self, grad_outputs: Sequence[torch.Tensor | None] | None, *, graph: bool, seed: int = 0) -> Map:
        """Give G as a map of inputs and grad_outputs; generic ones stand in for those not given.

        Args:
            grad_outputs: One an output that carries a graph.
            graph: Whether G shall carry a graph; without, its own derivative exists in forward mode alone.
            seed: Seeds the generic grad_outputs.
        """
        outputs = [o.detach() for o in self.forward()[1] if o.requires_grad]
        own = generic(generator(seed, GRAD_OUTPUTS), outputs)
        given = own if grad_outputs is None else tuple(grad_outputs)
        v = tuple((o if g is None else g).detach().requires_grad_() for g, o in zip(given, own, strict=True))
        leaves = pytree.tree_leaves(self.inputs)
        positions = [i for i, x in enumerate(leaves) if is_differentiable(x) and x.requires_grad]

        def gradients(arguments: tuple[Any, ...], weights: Tensors) -> Tensors:
            values, spec = pytree.tree_flatten(arguments)
            wrt: dict[int, torch.Tensor] = {}
            for i in positions:
                tensor = values[i]
                if id(tensor) not in wrt:
                    wrt[id(tensor)] = tensor if graph else _fresh(tensor)
                values[i] = wrt[id(tensor)]
            with torch.enable_grad():
                result = self.func(*pytree.tree_unflatten(values, spec))
                kept = [dense(o) for o in pytree.tree_leaves(result) if is_differentiable(o) and o.requires_grad]
                x = list(wrt.values())
                grads = torch.autograd.grad(kept, x, weights, create_graph=graph, allow_unused=True)
            return tuple(torch.zeros_like(p) if g is None else g for g, p in zip(grads, x, strict=True))

        return Map(gradients, (self.inputs, v), order=2)

    def tangents(self, u: Tensors) -> Tensors:
        """Push `u` through by forward mode; zeros for an output that does not depend on it.

        Raises:
            ForwardRaised: Some part of the map has no forward rule, or the rule raised.
        """
        subject = Subject(self.func, self.inputs)
        with fwAD.dual_level():
            duals = tuple(fwAD.make_dual(p, t) for p, t in zip(subject.point, u, strict=True))
            pairs = [fwAD.unpack_dual(o) for o in subject.apply(subject.arguments(duals))]
            return materialize([p.tangent for p in pairs], [p.primal for p in pairs])


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf with the tangent of `tensor` and without its graph."""
    with torch.no_grad():
        return tensor.clone().requires_grad_()


def renamed(verdict: Verdict, what: Map, mode: str) -> Verdict:
    """Say of a gradient's findings what they are of the function: order, mode, and the names of its tensors.

    What could not be told of it is dropped: the check of the function itself has said it.
    """
    if what.order == 1:
        return verdict
    if verdict.status is not Status.FAIL:
        return Verdict(Status.PASS)
    names = _names(what)
    found = (replace(f, where=names.get(f.where, f.where), order=2, mode=mode) for f in verdict.findings)
    return verdict.with_findings(tuple(found))


def one_order_more(verdict: Verdict, what: Map) -> Verdict:
    """Say of the second derivatives of a gradient what they are of the function: third ones."""
    names = _names(what)
    found = []
    for f in verdict.findings:
        if f.order == 2:  # its first derivatives are the function's second, which were judged before
            text = f.explanation.replace("declare order=1", "declare order=2").replace("first derivative", "second one")
            text = text.replace("double backward", "the third backward")
            where = names.get(f.where, f.where).replace("double backward", "third backward")
            found.append(replace(f, where=where, order=3, mode="rev-rev-rev", explanation=text))
    return replace(verdict.with_findings(tuple(found)), notes=tuple(f"of the gradient: {n}" for n in verdict.notes))


def _names(what: Map) -> dict[str, str]:
    """How the function's findings call what its gradient takes and returns."""
    arguments = what.inputs[0]
    tensors = [x for x in pytree.tree_leaves(arguments) if isinstance(x, torch.Tensor)]
    names = {f"input {len(tensors) + k}": f"grad_output {k}" for k in range(len(what.inputs[1]))}
    wrt = Subject(what.func, (arguments,)).names
    names |= {f"output {k}": f"gradient of {name}" for k, name in enumerate(wrt)}
    return names | {f"grad_output {k}": f"gradient of {name}" for k, name in enumerate(wrt)}
