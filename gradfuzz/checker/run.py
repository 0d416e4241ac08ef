"""One check under way: what the base calls showed, and the point at which derivatives are judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from gradfuzz.checker.direction import Mask, Rng, direction, generator, generic, jittered
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
    unflat,
)
from gradfuzz.checker.line import Context, Measurement, Tolerance
from gradfuzz.checker.nested import MODES, Nested, along
from gradfuzz.checker.screen import Agreed
from gradfuzz.errors import CheckError

# Which draws a generator serves; every purpose has its own, so that one oracle's draws never move another's.
GRAD_OUTPUTS, DIRECTIONS, JITTER, SETTLING, FORWARD, PRECISION, BATCH, FLATNESS, IDENTITIES, NESTED = range(10)

UNUSUAL_SEED = 0x67726164_66757A7A

DOUBLES = {torch.float64, torch.complex128}


@dataclass(frozen=True, slots=True)
class GlobalState:
    """What torch keeps for the whole process and a function must leave as it found it."""

    grad_mode: bool
    default_dtype: torch.dtype
    threads: int
    seed: int
    deterministic: bool
    anomaly: bool

    @classmethod
    def now(cls) -> GlobalState:
        """Read it."""
        return cls(
            torch.is_grad_enabled(),
            torch.get_default_dtype(),
            torch.get_num_threads(),
            torch.initial_seed(),
            torch.are_deterministic_algorithms_enabled(),
            torch.is_anomaly_enabled(),
        )

    def restore(self) -> None:
        """Put it back, all but the seed, which the caller restores with the generator's state."""
        torch.set_grad_enabled(self.grad_mode)
        torch.set_default_dtype(self.default_dtype)
        if torch.get_num_threads() != self.threads:
            torch.set_num_threads(self.threads)
        if torch.are_deterministic_algorithms_enabled() != self.deterministic:
            torch.use_deterministic_algorithms(self.deterministic)
        if torch.is_anomaly_enabled() != self.anomaly:
            torch.autograd.set_detect_anomaly(self.anomaly)


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors hold equal elements, nan equal to nan."""
    if a.dtype is torch.complex32:  # which has no comparison kernels
        a, b = a.to(torch.complex64), b.to(torch.complex64)
    if torch.equal(a, b):
        return True
    return a.shape == b.shape and bool(((a == b) | (a.isnan() & b.isnan())).all())


@dataclass(slots=True)
class Base:
    """Facts of the first calls with the inputs as given, layout and all.

    Attributes:
        outputs: The differentiable outputs, without graph.
        with_graph: By output, whether it carries a graph.
        grads: G as returned, None kept; None altogether where backward raised.
        leaves: The fresh inputs of this call.
        graph: The outputs as returned: the graph is kept alive for what else is asked of it.
        again: G of the same graph, differentiated a second time.
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
    again: tuple[torch.Tensor | None, ...] | None = None
    error: BackwardRaised | None = None
    state_before: GlobalState | None = None
    state_after: GlobalState | None = None
    written: list[tuple[str, str]] = field(default_factory=list)

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
        own_precision: Whether differences had to be taken in the inputs' own low precision.
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
    modes: tuple[str, ...] = MODES
    context: Context = field(init=False)
    x: Tensors = ()
    weights: Tensors = ()
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
    allowed_inputs: Mask | None = None
    allowed_outputs: Mask | None = None
    nested_along: Tensors = ()
    _nested: Nested | None = None

    @property
    def least_difference(self) -> float:
        """Sixteen of the smallest numbers of the coarsest dtype: below the normal range rounding is absolute."""
        dtypes = [t.dtype for t in (*self.subject.wrt, *self.base.outputs)]
        return 16 * max((torch.finfo(d).smallest_normal * torch.finfo(d).eps for d in dtypes), default=0.0)

    @property
    def finite(self) -> bool:
        """Whether all outputs are finite: where one is not, two runs may well differ, and a backward may refuse."""
        return all(bool(o.isfinite().all()) for o in self.base.outputs)

    def rng(self, purpose: int) -> Rng:
        """Make the generator of one purpose."""
        return generator(self.seed, purpose)

    @property
    def eps(self) -> float:
        """The machine epsilon of the inputs and outputs as given, the coarsest of them."""
        return coarsest_eps((*self.subject.wrt, *self.base.outputs))

    def jittered(self) -> Iterator[Tensors]:
        """Give points that differ from the inputs by rounding, in the precision given."""
        return jittered(self.rng(JITTER), self.subject.point, self.eps)

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


def begin(
    subject: Subject,
    grad_outputs: Sequence[torch.Tensor | None] | None,
    *,
    order: int,
    seed: int,
    **declared: Any,
) -> Run:
    """Make the base calls: forward, backward twice on one graph, watching state and memory.

    Raises:
        ForwardRaised: The function refuses its inputs.
        CheckError: The grad_outputs do not fit the outputs.
    """
    # A state that no function of the caller's left behind: one that seeds for itself is seen to move it.
    torch.random.set_rng_state(torch.Generator().manual_seed(UNUSUAL_SEED).get_state())
    base = Base(state_before=GlobalState.now())
    if subject.random:  # every call of it starts from its own seed
        base.state_before = replace(GlobalState.now(), seed=subject.seed)
    generator_state = torch.random.get_rng_state()
    leaves = subject.leaves()
    before = tuple(t.detach().clone() for t in leaves)
    arguments = subject.arguments(leaves, as_given=True)
    outputs = subject.apply(arguments)
    if not subject.random and not torch.equal(generator_state, torch.random.get_rng_state()):
        subject.random = True
        return begin(subject, grad_outputs, order=order, seed=seed, **declared)
    _written(base, "forward", before, leaves, subject.names)
    base.outputs = tuple(o.detach() for o in outputs)
    base.with_graph = tuple(o.requires_grad for o in outputs)
    base.leaves, base.graph = leaves, outputs
    given = _fit(grad_outputs, outputs)
    if any(o.layout is not torch.strided for o in outputs):
        return Run(subject, order, seed, None, base.outputs, base, **declared)
    own = generic(generator(seed, GRAD_OUTPUTS), base.outputs)
    v = own if given is None else tuple(o if g is None else g for g, o in zip(given, own, strict=True))
    handed = tuple(t.detach().clone(memory_format=torch.preserve_format) for t in v)
    kept = tuple(t.clone() for t in handed)
    names = [f"grad_output {i}" for i in range(len(v))]
    values_before = tuple(t.detach().clone() for t in leaves)
    try:
        base.grads = backward(outputs, leaves, handed, retain_graph=True)
        # Before the second backward, which would undo a switch that each backward flips.
        base.state_after = GlobalState.now()
        state = torch.random.get_rng_state()
        _written(base, "backward", kept, handed, names)
        _written(base, "backward", values_before, leaves, subject.names)
        base.grads = tuple(None if g is None else g.detach().clone() for g in base.grads)
        base.again = backward(outputs, leaves, kept, retain_graph=True)
        if not subject.random and not torch.equal(generator_state, state):
            subject.random = True
    except BackwardRaised as error:
        base.error = error
    base.state_after = base.state_after or GlobalState.now()
    if base.state_before is not None:
        base.state_before.restore()
    return Run(subject, order, seed, given, v, base, **declared)


def _written(base: Base, stage: str, before: Tensors, after: Tensors, names: Sequence[str]) -> None:
    for old, new, name in zip(before, after, names, strict=True):
        if not same(old, new.detach()) and (stage, name) not in base.written:
            base.written.append((stage, name))


def _fit(
    grad_outputs: Sequence[torch.Tensor | None] | None, outputs: Tensors
) -> tuple[torch.Tensor | None, ...] | None:
    """Match given grad_outputs with the outputs; those without a graph may be left out, as torch does."""
    if grad_outputs is None:
        return None
    given = tuple(grad_outputs)
    if len(given) != len(outputs):
        positions = [i for i, o in enumerate(outputs) if o.requires_grad]
        if len(given) != len(positions):
            raise CheckError(
                f"{len(given)} grad_outputs were given for {len(outputs)} differentiable outputs; give one each"
            )
        full: list[torch.Tensor | None] = [None] * len(outputs)
        for position, g in zip(positions, given, strict=True):
            full[position] = g
        given = tuple(full)
    for i, (g, o) in enumerate(zip(given, outputs, strict=True)):
        if g is not None and g.shape != o.shape:
            raise CheckError(
                f"grad_output {i} has shape {tuple(g.shape)}, its output {tuple(o.shape)}; they must be equal"
            )
    return given


def prepare(run: Run) -> None:
    """Choose the precision of judgement and the point, and find what may be moved and weighted."""
    double = _in_double(run)
    subject = double if double is not None else run.subject
    run.own_precision = double is None
    eps = float(np.finfo(np.float64).eps) if double is not None else run.eps
    run.context = Context(subject, run.order, eps, run.tolerance)
    run.x = subject.point
    outputs = run.base.outputs if subject is run.subject and subject.ordinary else subject.value(run.x)
    finite_outputs = np.isfinite(flat(outputs))
    # An auxiliary output without a graph beside others that have one is meant to have none.
    meant = [flag or not any(run.base.with_graph) for flag in run.base.with_graph]
    run.notes += [f"output {i} carries no graph: left out" for i, flag in enumerate(meant) if not flag]
    graphs = np.concatenate([np.full(flat((o,)).size, flag) for o, flag in zip(outputs, meant, strict=True)])
    run.allowed_outputs = finite_outputs & graphs
    if not run.allowed_outputs.all():
        run.context.left_out = ~run.allowed_outputs
    v = unflat(flat(run.v), outputs)
    usable = np.isfinite(flat(v))
    fallback = flat(generic(run.rng(GRAD_OUTPUTS), outputs))
    values = np.where(usable, flat(v), fallback)
    values[~run.allowed_outputs] = 0.0
    run.weights = unflat(values, outputs)
    run.allowed_inputs = np.isfinite(flat(run.x))
    # Where nothing distinguishes the inputs as given from the point of judgement, its double backward serves.
    run.shared = (
        subject is run.subject
        and subject.ordinary
        and bool(run.allowed_inputs.all() and run.allowed_outputs.all() and usable.all())
    )


def _in_double(run: Run) -> Subject | None:
    """Give the same function on the same values in double, where it stays in double throughout."""
    subject, outputs = run.subject, run.base.outputs
    # A constant beside them may have any dtype.
    judged = [flag or not any(run.base.with_graph) for flag in run.base.with_graph]
    if all(t.dtype in DOUBLES for t in (*subject.wrt, *(o for o, j in zip(outputs, judged, strict=True) if j))):
        return subject

    def up(t: torch.Tensor) -> torch.Tensor:
        if t.dtype.is_complex:
            return t.detach().to(torch.complex128).requires_grad_(t.requires_grad)
        if t.dtype.is_floating_point:
            return t.detach().to(torch.float64).requires_grad_(t.requires_grad)
        return t

    double = subject.with_inputs(up)
    try:
        there = double.value(double.point)
    except ForwardRaised:
        return None
    if any(j and o.dtype not in DOUBLES for o, j in zip(there, judged, strict=False)) or [o.shape for o in there] != [
        o.shape for o in outputs
    ]:
        return None
    return double
