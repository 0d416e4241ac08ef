"""Memory layout: strides, offset and the conj and neg bits change nothing but speed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch

from gradfuzz.checker.answers import Answers
from gradfuzz.checker.evaluation import is_differentiable
from gradfuzz.checker.oracles.metamorphic import afresh, agrees, answers, compare, contiguous, unless_random
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


class Layout(NamedTuple):
    """Another place in memory for the same elements.

    Attributes:
        name: What tensors that lie there are called.
        change: Gives a fresh tensor that lies there.
        raising: Whether a backward may not refuse it: everything handles strides, if need be by a copy.
        parts: What it is made of, where it is more than one thing.
    """

    name: str
    change: Callable[[torch.Tensor], torch.Tensor]
    raising: bool = True
    parts: tuple[Layout, ...] = ()


def transposed(x: torch.Tensor) -> torch.Tensor:
    """The same elements with the strides of the reversed dimensions."""
    if x.dim() < 2:
        return stepped(x)
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def stepped(x: torch.Tensor) -> torch.Tensor:
    """The same elements, every second one of a larger storage with another offset; the gaps hold other numbers."""
    other = x + 1 if is_differentiable(x) else x.flip(tuple(range(x.dim())))
    if x.dim() == 0:
        return torch.stack([other, x])[1]
    return torch.stack([other, x], dim=-1).reshape(*x.shape[:-1], 2 * x.shape[-1])[..., 1::2]


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """The same elements with the second of four or five dimensions innermost; others are only copied."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.clone(memory_format=formats.get(x.dim(), torch.contiguous_format))


def lazily(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """The same elements, laid out as `change` does, conjugated or negated in memory, and a bit that undoes it."""
    if x.dtype.is_complex:
        return change(x.conj().resolve_conj()).conj()
    return torch._neg_view(change(-x)) if x.dtype.is_floating_point else change(x)


def lazy(x: torch.Tensor) -> torch.Tensor:
    """The same elements, conjugated in memory where they are complex and negated where they are real, and a bit set."""
    return lazily(x, torch.clone)


TRANSPOSED = Layout("transposed", transposed)
STEPPED = Layout("every second element of a larger tensor", stepped)
# numpy and most foreign kernels refuse such tensors with a clear message, which is their right.
LAZY = Layout("negated or conjugated by a bit alone", lazy, raising=False)
CHANNELS_LAST = Layout("channels-last", channels_last)
STEPPED_AND_LAZY = Layout("", lambda x: lazily(x, stepped), parts=(STEPPED, LAZY))
TRANSPOSED_AND_LAZY = Layout("", lambda x: lazily(x, transposed), parts=(TRANSPOSED, LAZY))
# Shapes that convolutions have: networks lay these out with their channels innermost.
IMAGE_DIMENSIONS = (4, 5)


def layout_is_irrelevant(run: Run) -> Iterator[Finding]:
    """Same values, same result: inputs as given against contiguous ones, inputs and grad_outputs laid out otherwise."""
    if run.base.grads is None:
        return
    want = contiguous(run)
    if not run.subject.ordinary and not run.subject.random:
        differences = compare(
            run,
            Symptom.LAYOUT_DEPENDENT,
            want,
            lambda: run.given,
            explanation="with the inputs' own strides; contiguous copies of them give another {what}",
        )
        found = list(unless_random(run, differences))
        yield from found
        if found:
            return
    # Inputs one way and grad_outputs the other, and the other way round: two calls see each of the four.
    pairs = [(TRANSPOSED, STEPPED), (STEPPED_AND_LAZY, TRANSPOSED_AND_LAZY)]
    if any(t.dim() in IMAGE_DIMENSIONS for t in (*run.subject.wrt, *run.v)):
        pairs.append((CHANNELS_LAST, CHANNELS_LAST))
    for inputs, grad_outputs in pairs:
        found = list(laid_out(run, want, inputs, grad_outputs))
        yield from found
        if found:
            return


def laid_out(run: Run, want: Answers, inputs: Layout, grad_outputs: Layout) -> Iterator[Finding]:
    """Lay both out otherwise in one call; only if that shows something, one after the other, to tell which."""
    # A random function fills other elements when it walks memory in another order: no two layouts of inputs compare.
    both = None if run.subject.random else inputs
    if agrees(run, want, lambda: relaid(run, both, grad_outputs)):
        return
    apart: list[tuple[Layout | None, Layout | None]] = []
    if both is not None:
        apart += [(part, None) for part in both.parts or (both,)]
    apart += [(None, part) for part in grad_outputs.parts or (grad_outputs,)]
    for x, v in apart:
        found = list(_alone(run, want, x, v))
        yield from found
        if found:
            return


def _alone(run: Run, want: Answers, inputs: Layout | None, grad_outputs: Layout | None) -> Iterator[Finding]:
    layout = inputs or grad_outputs
    assert layout is not None  # one of them was given
    if inputs is not None:
        where, explanation = "", f"with inputs that are {layout.name}; contiguous ones give another {{what}}"
    else:
        where = "grad_output"
        explanation = f"with a grad_output that is {layout.name} where a contiguous one gives another {{what}}"
    differences = compare(
        run,
        Symptom.LAYOUT_DEPENDENT,
        want,
        lambda: relaid(run, inputs, grad_outputs),
        again=lambda: afresh(run),
        where=where,
        explanation=explanation,
        raising=layout.raising,
    )
    yield from differences if inputs is None else unless_random(run, differences)


def relaid(run: Run, inputs: Layout | None, grad_outputs: Layout | None) -> Answers:
    """Run the function with tensors laid out otherwise, those that are not differentiated too.

    Raises:
        ForwardRaised: It refuses them.
        BackwardRaised: A backward does.
    """
    subject = run.subject
    if inputs is None:
        leaves, outputs = subject.forward(subject.point)
    else:
        change = inputs.change
        leaves = tuple(change(p).detach().requires_grad_() for p in subject.point)
        if subject.others:
            subject = subject.with_inputs(lambda t: t if any(t is x for x in subject.wrt) else _of_any(t, change))
        outputs = subject.apply(subject.arguments(leaves, as_given=bool(subject.others)))
    plain = tuple(g.clone(memory_format=torch.contiguous_format) for g in run.v)
    v = plain if grad_outputs is None else tuple(grad_outputs.change(g) for g in plain)
    return answers(run, leaves, outputs, v)


def _of_any(x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Lay out a constant or an index tensor; what cannot be, stays."""
    if x.layout is not torch.strided or x.is_quantized or x.numel() == 0:
        return x
    return change(x.detach())
