"""What kind of mistake a wrong derivative looks like: a sentence where the evidence is unambiguous, else nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from gradfuzz.checker.evaluation import MOST_NODES, Array, Tensors, flat, is_differentiable

if TYPE_CHECKING:
    from gradfuzz.checker.line import Measurement
    from gradfuzz.checker.run import Run

# Two ratios are taken for the same number within this fraction: far above the error bars of a contradiction's
# estimates, far below the gap between any two factors that people forget.
SAME_RATIO = 1e-5
# Far above rounding, far below what would move a mask.
A_LITTLE = 1e-6
# Factors that people forget or add, by the words for them.
FACTORS = {2.0: "twice", 0.5: "half", 3.0: "three times", 1 / 3: "a third of", 4.0: "four times", 0.25: "a quarter of"}


def _ratio(pairs: list[tuple[float, float]]) -> float | None:
    """The constant that every got is of its want; None where there is none or a single pair proves nothing."""
    ratios = [got / want for got, want in pairs if want != 0]
    if not ratios or len(ratios) < len(pairs):
        return None
    first = ratios[0]
    return first if all(abs(r - first) <= SAME_RATIO * max(abs(first), 1.0) for r in ratios) else None


def _of_ratio(ratio: float, count: int) -> str:
    if abs(ratio + 1) <= SAME_RATIO:
        return "the sign is wrong"
    for factor, words in FACTORS.items():
        if abs(ratio - factor) <= SAME_RATIO * factor:
            return f"{words} what it should be"
    summed = f"{count} times what it should be, the number of elements: summed where it should be meaned"
    meaned = f"1/{count} of what it should be, {count} being the number of elements: meaned where it should be summed"
    for n, words in ((float(count), summed), (1.0 / max(count, 1), meaned)):
        if count > 1 and abs(ratio - n) <= SAME_RATIO * n:
            return words
    return ""


def first_order(run: Run, m: Measurement, pairs: dict[int, tuple[float, float]]) -> str:
    """Explain wrong gradients by element: pairs of got and want."""
    x = flat(m.x)
    wrong = {k: p for k, p in pairs.items() if abs(p[0] - p[1]) > SAME_RATIO * max(abs(p[0]), abs(p[1]))}
    if not wrong:
        return ""
    count = max((t.numel() for t in run.subject.wrt), default=0)
    sentences = []
    if all(got == 0 for got, _ in wrong.values()):
        sentences.append("zero where it should not be")
    elif (ratio := _ratio(list(wrong.values()))) is not None and (text := _of_ratio(ratio, count)):
        sentences.append(text)
    right = [k for k in pairs if k not in wrong]
    if sentences and right and len(wrong) > 1:
        for words, holds in (("negative", x < 0), ("positive", x > 0), ("zero", x == 0)):
            if all(holds[k] for k in wrong) and not any(holds[k] for k in right):
                sentences.append(f"at the elements that are {words}, and only there")
    return " ".join(sentences)


def second_order(run: Run, got: Array, want: Array, k: int) -> str:
    """Explain a wrong second derivative whose first is right, by what the graph and the numbers show."""
    if not (np.isfinite(got[k]) and np.isfinite(want[k])):
        return ""
    if saves_an_intermediate(run):
        return "the backward uses a value that forward computed and saved, which counts as a constant; compute it anew"
    if got[k] == 0:
        return "zero although the first derivative is right: a term of the backward carries no graph"
    words = _of_ratio(float(got[k] / want[k]), 1) if want[k] else ""
    return f"the first derivative is right, the second {words}" if words else ""


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
    _, outputs = run.context.subject.forward(x)
    bare: list[torch.Tensor] = []
    seen: set[torch.autograd.graph.Node] = set()
    nodes = [o.grad_fn for o in outputs]
    while nodes and len(seen) < MOST_NODES:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            kept = [*node.saved_tensors, *vars(node).values()]
            bare += [t for t in kept if is_differentiable(t) and t.numel() and not t.requires_grad]
    return bare


def by_mode(run: Run, mode: str, x: Tensors) -> str:
    """Explain a second derivative that forward mode gets wrong and double backward right."""
    if mode == "fwd-fwd" and _defines_a_jvp(run, x):
        return (
            "double backward is right; torch loses the outer tangent of any Function that defines a jvp, "
            "so this is not for the Function to mend"
        )
    part = {"fwd-rev": "the backward", "rev-fwd": "the forward rule", "fwd-fwd": "the forward rule"}[mode]
    return f"double backward is right; {part} uses a value that counts as a constant in this mode, or a wrong rule"


def _defines_a_jvp(run: Run, x: Tensors) -> bool:
    """Whether a Function of the graph has a forward rule of its own."""
    nodes = graph_of(run.context.subject.forward(x)[1])
    functions = [getattr(type(node), "_forward_cls", None) for node in nodes]
    return any(f is not None and f.jvp is not torch.autograd.Function.jvp for f in functions)


def graph_of(outputs: Tensors) -> list[torch.autograd.graph.Node]:
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
