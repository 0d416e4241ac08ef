"""The modes a caller may ask for by name: forward-mode AD, batching, and both applied to the gradient itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.autograd.forward_ad as fwAD  # as torch.s documentation calls it
from torch.utils import _pytree as pytree

from gradfuzz.checker.direction import direction, generator, generic
from gradfuzz.checker.evaluation import Subject, Tensors, is_differentiable, materialize
from gradfuzz.checker.judge import check
from gradfuzz.checker.line import Tolerance
from gradfuzz.checker.naming import one_line
from gradfuzz.checker.oracles.structure import REFUSALS
from gradfuzz.checker.run import BATCH, GRAD_OUTPUTS, MODES
from gradfuzz.checker.verdict import Finding, Status, Symptom, Verdict

BATCH_SIZE = 2
# A batched kernel may sum in another order: a thousand roundings of the largest element, as for another layout.
BATCH_ROUNDINGS = 1e3


@dataclass(frozen=True, slots=True)
class Manner:
    """How a map is looked at: what agrees, and what the seeds are."""

    tolerance: Tolerance
    nondet_tol: float = 0.0
    seed: int = 0


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

    def gradient(self, grad_outputs: Sequence[torch.Tensor | None] | None, *, graph: bool, seed: int = 0) -> Map:
        """Give G as a map of inputs and grad_outputs; generic ones stand in for those not given.

        Args:
            grad_outputs: One an output that carries a graph.
            graph: Whether G shall carry a graph; without, its own derivative exists in forward mode alone.
            seed: Seeds the generic grad_outputs.
        """
        outputs = [o.detach() for o in Subject(self.func, self.inputs, seed=seed).forward()[1] if o.requires_grad]
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
                kept = [o for o in pytree.tree_leaves(result) if is_differentiable(o) and o.requires_grad]
                x = list(wrt.values())
                grads = torch.autograd.grad(kept, x, weights, create_graph=graph, allow_unused=True)
            return tuple(torch.zeros_like(p) if g is None else g for g, p in zip(grads, x, strict=True))

        return Map(gradients, (self.inputs, v), order=2)

    def duals(self, tangents: Tensors) -> list[Any]:
        """Give the arguments of one call with a tangent on each differentiable input; asks for a dual level."""
        subject = Subject(self.func, self.inputs)
        duals = tuple(fwAD.make_dual(p, t) for p, t in zip(subject.point, tangents, strict=True))
        return list(pytree.tree_unflatten(subject.arguments(duals), pytree.tree_structure(self.inputs)))

    def tangents(self, u: Tensors) -> Tensors:
        """Push `u` through by forward mode; zeros for an output that does not depend on it."""
        with fwAD.dual_level(), torch.no_grad():
            result = self.func(*self.duals(u))
            pairs = [fwAD.unpack_dual(o) for o in pytree.tree_leaves(result) if is_differentiable(o)]
            return materialize([p.tangent for p in pairs], [p.primal for p in pairs])


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    """A leaf with the tangent of `tensor` and without its graph."""
    with torch.no_grad():
        return tensor.clone().requires_grad_()


def _without_graph(func: Callable[..., Any]) -> Callable[..., Any]:
    """Keep the backward out of it: forward mode is judged where there is none, too."""

    def call(*arguments: Any) -> Any:
        with torch.no_grad():
            return func(*arguments)

    return call


def forward_mode(what: Map, manner: Manner) -> Verdict:
    """Judge forward-mode AD of a map; a part without a forward rule is a finding, for the caller asked for it."""
    mode = "fwd" if what.order == 1 else "fwd-rev"
    rng = generator(manner.seed, MODES)
    try:
        what.tangents(direction(rng, Subject(what.func, what.inputs).point))
    except Exception as error:
        symptom = Symptom.NOT_DIFFERENTIABLE if _is_refusal(error) else Symptom.FORWARD_MODE
        found = Finding(symptom, "forward", one_line(error), "tangents", what.order, mode, exception=_type(error))
        return _with(found)
    verdict = check(
        _without_graph(what.func), what.inputs, order=1, oracles=[Symptom.FORWARD_MODE], seed=manner.seed,
        tolerance=manner.tolerance,
    )  # fmt: skip
    return _renamed(verdict, what, mode)


def repeats(what: Map, manner: Manner) -> Verdict:
    """Judge whether two equal backwards of a map give equal gradients."""
    verdict = check(
        what.func, what.inputs, order=1, oracles=[Symptom.NONDETERMINISTIC], seed=manner.seed,
        nondet_tol=manner.nondet_tol,
    )  # fmt: skip
    return _renamed(verdict, what, "rev" if what.order == 1 else "rev-rev")


def batched(what: Map, manner: Manner) -> Verdict:
    """Judge the backward of a map under vmap over its grad_outputs; one that cannot be batched is a finding."""
    mode = "rev" if what.order == 1 else "rev-rev"
    leaves, outputs = Subject(what.func, what.inputs, seed=manner.seed).forward()
    kept = [o for o in outputs if o.requires_grad]
    if not kept:
        return _with()
    rng = generator(manner.seed, BATCH)
    batch = [generic(rng, kept) for _ in range(BATCH_SIZE)]

    def backward(*v: torch.Tensor) -> Tensors:
        grads = torch.autograd.grad(kept, leaves, v, retain_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    try:
        backward(*batch[0])
    except Exception:  # whatever it is, it is no matter of batching, and the ordinary check reports it
        return _with()
    try:
        torch.vmap(backward)(*(torch.stack(rows) for rows in zip(*batch, strict=True)))
    except Exception as error:
        return _with(_unbatchable(error, "backward" if what.order == 1 else "double backward", what.order, mode))
    verdict = check(what.func, what.inputs, order=1, oracles=[Symptom.BATCHED], seed=manner.seed)
    return _renamed(verdict, what, mode)


def batched_forward(what: Map, manner: Manner) -> Verdict:
    """Judge forward mode under vmap over its tangents."""
    rng = generator(manner.seed, BATCH)
    point = Subject(what.func, what.inputs).point
    batch = [direction(rng, point) for _ in range(BATCH_SIZE)]
    loop = [what.tangents(u) for u in batch]
    try:
        mapped = torch.vmap(lambda *u: what.tangents(u))(*(torch.stack(rows) for rows in zip(*batch, strict=True)))
    except Exception as error:
        return _with(_unbatchable(error, "forward", what.order, "fwd"))
    return _with(*_unlike(loop, mapped, what.order))


def _unlike(loop: Sequence[Tensors], mapped: Tensors, order: int) -> Iterator[Finding]:
    for i, alone in enumerate(loop):
        for k, (want, rows) in enumerate(zip(alone, mapped, strict=True)):
            got = rows[i]
            allowed = BATCH_ROUNDINGS * torch.finfo(want.dtype).eps * want.abs().amax() if want.numel() else 0.0
            gap = (got - want).abs()
            if want.numel() and not bool((gap <= allowed).logical_or(got.isnan() & want.isnan()).all()):
                worst = int(gap.reshape(-1).nan_to_num(torch.inf).argmax())
                yield Finding(
                    Symptom.BATCHED, f"output {k}", f"{got.reshape(-1)[worst].item():.6g}",
                    f"{want.reshape(-1)[worst].item():.6g}, as alone", order, "fwd",
                    explanation=f"in entry {i} of a batch of {BATCH_SIZE} tangents",
                )  # fmt: skip
                return


def _unbatchable(error: Exception, where: str, order: int, mode: str) -> Finding:
    return Finding(
        Symptom.BATCHED, where, one_line(error), "the gradients of a loop", order, mode, exception=_type(error),
        explanation="it cannot run under vmap",
    )  # fmt: skip


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, NotImplementedError) or any(r in str(error).lower() for r in REFUSALS)


def _type(error: Exception) -> str:
    return type(error).__name__


def _with(*findings: Finding) -> Verdict:
    """Give a verdict with these findings; none makes it a pass."""
    return Verdict(Status.FAIL if findings else Status.PASS, findings)


def _renamed(verdict: Verdict, what: Map, mode: str) -> Verdict:
    """Say of a gradient's findings what they are of the function: order, mode, and the names of its tensors."""
    if what.order == 1:
        return verdict
    arguments = what.inputs[0]
    tensors = [x for x in pytree.tree_leaves(arguments) if isinstance(x, torch.Tensor)]
    names = {f"input {len(tensors) + k}": f"grad_output {k}" for k in range(len(what.inputs[1]))}
    wrt = Subject(what.func, (arguments,)).names
    names |= {f"output {k}": f"gradient of {name}" for k, name in enumerate(wrt)}
    found = (replace(f, where=names.get(f.where, f.where), order=2, mode=mode) for f in verdict.findings)
    return verdict.with_findings(tuple(found))
