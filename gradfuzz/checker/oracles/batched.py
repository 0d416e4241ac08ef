"""Batched gradients: vmap over grad_outputs gives what a loop over them gives."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from gradfuzz.checker.direction import BATCH, generic
from gradfuzz.checker.evaluation import BackwardRaised, ForwardRaised, Tensors, backward, materialize
from gradfuzz.checker.oracles.metamorphic import compare_gradients
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom

BATCH_SIZE = 2


def batched_is_the_loop(run: Run) -> Iterator[Finding]:
    """Map one backward over a batch of grad_outputs; a missing batching rule is no finding.

    The forward stays outside vmap: `is_grads_batched` would never ask a Function for its own vmap rule.
    """
    point = run.subject.point
    rng = run.rng(BATCH)
    try:
        leaves, outputs = run.subject.forward(point)
        kept = [o for o in outputs if o.requires_grad]
        if not kept:
            return
        batch = [generic(rng, kept) for _ in range(BATCH_SIZE)]
        loop = [materialize(backward(kept, leaves, v, retain_graph=True), leaves) for v in batch]
    except (ForwardRaised, BackwardRaised):
        return
    used = [g is not None for g in backward(kept, leaves, batch[0], retain_graph=True)]

    def vjp(*v: torch.Tensor) -> Tensors:
        grads = torch.autograd.grad(kept, leaves, v, retain_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None)

    stacked = tuple(torch.stack([v[i] for v in batch]) for i in range(len(kept)))
    try:
        mapped = iter(torch.vmap(vjp)(*stacked))
    except Exception:  # any exception says the same: this backward cannot be batched, which nobody promised
        return
    full = tuple(
        next(mapped) if flag else torch.zeros((BATCH_SIZE, *x.shape), dtype=x.dtype, device=x.device)
        for flag, x in zip(used, leaves, strict=True)
    )
    for i in range(BATCH_SIZE):
        found = list(
            compare_gradients(
                run,
                Symptom.BATCHED,
                loop[i],
                lambda i=i: tuple(f[i].detach() for f in full),  # type: ignore[misc]
                explanation=f"in entry {i} of a batch of {BATCH_SIZE} grad_outputs; alone it gives another gradient",
            )
        )
        yield from found
        if found:
            return
