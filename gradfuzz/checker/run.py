"""One check under way: what the base calls showed, and the point at which derivatives are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import torch

from gradfuzz.checker.answers import Answers
from gradfuzz.checker.direction import JITTER, NESTED, Mask, Rng, direction, generator, jittered
from gradfuzz.checker.evaluation import (
    Array,
    BackwardRaised,
    ForwardRaised,
    Second,
    Subject,
    Tensors,
    backward,
    double_backward,
    flat,
    materialize,
)
from gradfuzz.checker.line import Context, Measurement, Tolerance
from gradfuzz.checker.nested import MODES, Nested, along
from gradfuzz.checker.promote import DOUBLES as DOUBLES
from gradfuzz.checker.promote import Promoting
from gradfuzz.checker.screen import Agreed
from gradfuzz.checker.state import GlobalState


@dataclass
class Base:
    """Facts of the first calls with the inputs as given, layout and all.

    Attributes:
        outputs: The differentiable outputs, without graph.
        with_graph: By output, whether it carries a graph.
        grads: G as returned, None kept; None altogether where backward raised.
        leaves: The fresh inputs of this call.
        v: The grad_outputs of the first backward.
        graph: The outputs as returned: the graph is kept alive for what else is asked of it.
        error: What the first backward raised.
        state_before: The global state before the calls.
        state_after: The global state after forward and backward.
        written: Where forward or backward wrote: pairs of the stage and the tensor's name.
    """

    outputs: Tensors = ()
    with_graph: tuple[bool, ...] = ()
    grads: tuple[torch.Tensor | None, ...] | None = None
    leaves: Tensors = ()
    graph: Tensors = ()
    v: Tensors = ()
    error: BackwardRaised | None = None
    state_before: GlobalState | None = None
    state_after: GlobalState | None = None
    written: list[tuple[str, str]] = field(default_factory=list)

    @cached_property
    def again(self) -> tuple[torch.Tensor | None, ...]:
        """G of the same graph, differentiated a second time.

        Raises:
            BackwardRaised: It raised this time.
        """
        return backward(self.graph, self.leaves, self.v, retain_graph=True)

    @property
    def gradients(self) -> Tensors:
        """G with zeros in the place of None; what the oracles compare with."""
        assert self.grads is not None  # an oracle that needs it is not asked where backward raised
        return materialize(self.grads, self.leaves)


@dataclass(slots=True)
class Run:
    """One check under way.

    Attributes:
        subject: The function with the inputs as given.
        order: The highest derivative looked at.
        seed: Seeds all draws of this check.
        grad_outputs: The grad_outputs as given, None altogether where the caller gave none.
        v: Defined grad_outputs at the outputs' dtypes: those given, generic ones for the undefined.
        base: What the first calls showed.
        context: How derivatives are judged: in double wherever the function allows it.
        x: The point of judgement, in the context's precision.
        weights: `v` in the context's precision, without what is not finite.
        promoted: Whether the function runs in double only where its constants of lower dtype are promoted.
        own_precision: Whether differences had to be taken in the inputs' own low precision.
        explain: Whether findings are to be explained; what it takes is a third of a failing check.
        modes: Which modes of the second derivative are looked at beside double backward.
        undefined: Which gradients are undefined in the second backward, by input.
        first_order_wrong: Whether the gradient was found wrong.
        second_order_wrong: Whether double backward was.
        stochastic: Whether nondeterminism was declared.
        detached: Names of inputs whose gradient was declared detached.
        shared: Whether the inputs as given and the point of judgement are the same in all respects.
        reasons: Why something could not be told.
        second: The double backward of the inputs as given, once made, along `second_along`.
        second_along: Its direction.
        again: The same double backward, of another call, once somebody made it: H u, then J u.
        nested_along: The second direction of fwd-fwd, once `nested` was asked.
        agreed: What the screen found to agree, once it was asked.
        measured: The comparison at the point itself, where the screen said nothing.
        notes: What a reader may want to know of a pass.
    """

    subject: Subject
    order: int
    seed: int
    grad_outputs: tuple[torch.Tensor | None, ...] | None
    v: Tensors
    base: Base
    tolerance: Tolerance = field(default_factory=Tolerance)
    undefined: tuple[bool, ...] = ()
    stochastic: bool = False
    detached: frozenset[str] = frozenset()
    nondet_tol: float = 0.0
    explain: bool = True
    modes: tuple[str, ...] = MODES
    context: Context = field(init=False)
    x: Tensors = ()
    weights: Tensors = ()
    promoted: bool = False
    own_precision: bool = False
    refused_second: bool = False
    shared: bool = False
    first_order_wrong: bool = False
    second_order_wrong: bool = False
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    elements: int = 0
    agreed: Agreed | None = None
    measured: Measurement | None = None
    second: Second | None = None
    second_along: Tensors = ()
    again: Tensors = ()
    allowed_inputs: Mask | None = None
    allowed_outputs: Mask | None = None
    nested_along: Tensors = ()
    _nested: Nested | None = None
    _given: Answers | None = None
    _finite: bool | None = None
    _eps: float = 0.0

    @property
    def least_difference(self) -> float:
        """Sixteen of the smallest numbers of the coarsest dtype: below the normal range rounding is absolute."""
        dtypes = [t.dtype for t in (*self.subject.wrt, *self.base.outputs)]
        return 16 * max((torch.finfo(d).smallest_normal * torch.finfo(d).eps for d in dtypes), default=0.0)

    @property
    def finite(self) -> bool:
        """Whether all outputs are finite: where one is not, two runs may well differ, and a backward may refuse."""
        if self._finite is None:
            self._finite = bool(np.isfinite(flat(self.base.outputs)).all())
        return self._finite

    @property
    def given(self) -> Answers:
        """What the base calls gave, as plain numbers: F, G and, once it was made, the second derivative."""
        if self._given is None or (self._given.hessian_u is None and self.second is not None):
            second = self.second
            self._given = Answers(
                flat(self.base.outputs),
                flat(self.base.gradients),
                flat(second.hessian_u) if second else None,
                flat(second.jacobian_u) if second else None,
            )
        return self._given

    @property
    def repeated(self) -> bool:
        """Whether the screen differentiated the base graph twice and saw several calls agree on one function."""
        return self.shared and self.agreed is not None and isinstance(self.agreed.analytic, Second)

    def promoting(self) -> AbstractContextManager[object]:
        """Promote operands for as long as the context lasts, where this function needs it."""
        return Promoting() if self.promoted else nullcontext()

    def rng(self, purpose: int) -> Rng:
        """Make the generator of one purpose."""
        return generator(self.seed, purpose)

    @property
    def eps(self) -> float:
        """The machine epsilon of the inputs and outputs as given, the coarsest of them."""
        self._eps = self._eps or coarsest_eps((*self.subject.wrt, *self.base.outputs))
        return self._eps

    def jittered(self) -> Iterator[Tensors]:
        """Give points that differ from the inputs by rounding, in the precision given."""
        return jittered(self.rng(JITTER), self.subject.point, self.eps)

    def keep(self, nested: Nested, w: Tensors | None) -> None:
        """Take what forward mode gave along the direction that the screen chose."""
        self._nested, self.nested_along = nested, w or ()

    def nested(self) -> Nested:
        """Everything that forward mode gives along the direction that the screen found to agree; made once."""
        assert self.agreed is not None  # who asks has seen that
        if self._nested is None:
            at = self.agreed
            second = isinstance(at.analytic, Second) and bool(self.modes)
            w = direction(self.rng(NESTED), at.x) if second and "fwd-fwd" in self.modes else None
            order = 2 if second else 1
            self._nested = along(self.context.subject, at.x, at.v, at.u, w, order=order)
            self.nested_along = w or ()
        return self._nested

    def differentiate_twice(self, u: Tensors) -> Second:
        """Run double backward along u on the graph of the base call.

        Raises:
            BackwardRaised: A backward raised; its `order` tells which.
        """
        self.second = double_backward(self.base.leaves, self.base.graph, self.v, u, retain_graph=True)
        self.second_along = u
        return self.second

    def gradients_at(
        self, point: Sequence[torch.Tensor] | None, v: Sequence[torch.Tensor | None] | None = None
    ) -> Tensors:
        """Run forward and backward in the precision given; zeros in the place of None."""
        return self.subject.gradient(point, self.v if v is None else v).gradients

    def gradient_noise(self) -> Array:
        """What two roundings of the inputs do to G, by element, in the precision given."""
        centre = flat(self.gradients_at(self.subject.point))
        noise = np.zeros_like(centre)
        for point in self.jittered():
            try:
                there = flat(self.gradients_at(point))
            except (ForwardRaised, BackwardRaised):
                continue
            with np.errstate(all="ignore"):
                noise = np.fmax(noise, np.abs(there - centre))
        return noise


def coarsest_eps(tensors: Sequence[torch.Tensor]) -> float:
    """Give the largest machine epsilon among the dtypes of `tensors`."""
    return max((torch.finfo(t.dtype).eps for t in tensors), default=float(np.finfo(np.float64).eps))
