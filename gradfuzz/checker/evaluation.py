"""Running the function under check: forward, backward and double backward, each time on fresh tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch.utils import _pytree as pytree

from gradfuzz.checker.engine import differentiate
from gradfuzz.checker.sparse import strided
from gradfuzz.checker.tensors import Array as Array
from gradfuzz.checker.tensors import Tensors as Tensors
from gradfuzz.checker.tensors import dense as dense
from gradfuzz.checker.tensors import flat as flat
from gradfuzz.checker.tensors import is_differentiable as is_differentiable
from gradfuzz.checker.tensors import materialize as materialize
from gradfuzz.checker.tensors import move as move
from gradfuzz.checker.tensors import ordinary as ordinary
from gradfuzz.checker.tensors import replicas as replicas
from gradfuzz.checker.tensors import segments as segments
from gradfuzz.checker.tensors import unflat as unflat
from gradfuzz.errors import CheckError

# The nodes that torch puts where a derivative is refused, and how many nodes are looked through for one.
REFUSING_NODES = {"torch::autograd::Error", "NotImplemented"}
MOST_NODES = 10_000


class ForwardRaised(Exception):
    """The function refused its inputs; `error` is what it raised."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


class BackwardRaised(Exception):
    """A backward raised; `order` tells which derivative was asked for."""

    def __init__(self, error: BaseException, order: int) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error
        self.order = order


@dataclass(slots=True)
class First:
    """A forward and a backward: outputs, gradients, and the live graph they came from.

    Attributes:
        outputs: The differentiable outputs, as returned (they carry the graph).
        grads: One gradient an input as returned: None is kept.
        leaves: The fresh inputs of this call.
    """

    outputs: Tensors
    grads: tuple[torch.Tensor | None, ...]
    leaves: Tensors

    @property
    def values(self) -> Tensors:
        """The outputs without their graph."""
        return tuple(o.detach() for o in self.outputs)

    @property
    def gradients(self) -> Tensors:
        """The gradients without their graph, zeros in the place of None."""
        return materialize(self.grads, self.leaves)


@dataclass(slots=True)
class Second(First):
    """A double backward of ``<G, u>``: `hessian_u` for the inputs, `jacobian_u` for the grad_outputs.

    Attributes:
        hessian_u: d<G, u>/dx, one tensor an input, zeros in the place of None.
        jacobian_u: d<G, u>/dv, one tensor an output, zeros in the place of None.
        detached: By input, whether its gradient carries no graph.
    """

    hessian_u: Tensors = ()
    jacobian_u: Tensors = ()
    detached: tuple[bool, ...] = ()


class Subject:
    """The function under check together with its inputs: a map from differentiable inputs to outputs.

    Every call builds fresh tensors, so nothing the function does to its arguments reaches the next call.
    The same tensor passed twice is one input. Where the function is seen to draw random numbers, every call
    starts from the same state of torch's generator.

    Attributes:
        wrt: The differentiable inputs as given: tensors that ask for a gradient, each once.
        names: How a finding calls each of them: ``input 0`` is the first tensor argument.
        random: Whether the function was seen to draw from torch's generator.
    """

    def __init__(self, func: Callable[..., Any], inputs: Sequence[Any], *, seed: int = 0) -> None:
        self.func = func
        self.seed = seed
        self.random = False
        self._leaves, self._spec = pytree.tree_flatten(tuple(inputs))
        self.wrt: list[torch.Tensor] = []
        self.names: list[str] = []
        self._slot: list[int | None] = []
        tensors = 0
        for value in self._leaves:
            slot = None
            if isinstance(value, torch.Tensor):
                if is_differentiable(value) and value.requires_grad:
                    slot = next((i for i, t in enumerate(self.wrt) if t is value), None)
                    if slot is None:
                        slot = len(self.wrt)
                        self.wrt.append(value)
                        self.names.append(f"input {tensors}")
                tensors += 1
            self._slot.append(slot)
        self.others: list[torch.Tensor] = [
            v for v, s in zip(self._leaves, self._slot, strict=True) if s is None and isinstance(v, torch.Tensor)
        ]
        self.shapes: list[torch.Size] | None = None

    @cached_property
    def _flat_call(self) -> bool:
        """Whether the arguments are no nest, so that the function can be called with them as they lie."""
        return self._spec == pytree.tree_structure((None,) * len(self._leaves))

    @cached_property
    def _wrt_alone(self) -> bool:
        """Whether the arguments are the differentiable inputs, each a leaf, each once and nothing else."""
        return self._slot == list(range(len(self._leaves))) and all(t.is_leaf for t in self.wrt)

    @property
    def point(self) -> Tensors:
        """The values of the differentiable inputs as fresh contiguous tensors."""
        return tuple(dense(t.detach()).clone(memory_format=torch.contiguous_format).resolve_neg() for t in self.wrt)

    @cached_property
    def ordinary(self) -> bool:
        """Whether the inputs lie in memory as fresh contiguous tensors would."""
        return all(ordinary(t) and t.is_leaf for t in self.wrt) and not self.sharing

    @property
    def sharing(self) -> bool:
        """Whether two different inputs share memory."""
        pointers = [t.untyped_storage().data_ptr() for t in self.wrt if t.layout is torch.strided and t.numel()]
        return len(set(pointers)) < len(pointers)

    def with_inputs(
        self,
        replace: Callable[[torch.Tensor], torch.Tensor],
        *,
        dtypes: Mapping[torch.dtype, torch.dtype] | None = None,
    ) -> Subject:
        """Give the same function with every tensor argument replaced; identity of arguments is kept.

        Args:
            replace: What to put in the place of a tensor.
            dtypes: What to put in the place of an argument that is a dtype.
        """
        seen: dict[int, torch.Tensor] = {}

        def once(value: Any) -> Any:
            if isinstance(value, torch.dtype):
                return (dtypes or {}).get(value, value)
            if not isinstance(value, torch.Tensor):
                return value
            if id(value) not in seen:
                seen[id(value)] = replace(value)
            return seen[id(value)]

        inputs = pytree.tree_unflatten([once(v) for v in self._leaves], self._spec)
        subject = Subject(self.func, inputs, seed=self.seed)
        subject.random = self.random
        return subject

    def leaves(self, point: Sequence[torch.Tensor] | None = None, *, wanted: Sequence[bool] | None = None) -> Tensors:
        """Make fresh leaf tensors: at `point`, or the inputs as given with their memory layout.

        Args:
            point: The values; None copies the inputs as they are, layout, sharing and all.
            wanted: Which of them ask for a gradient; None means all.
        """
        if point is None:
            fresh = tuple(t.detach().clone() for t in self.wrt) if self.ordinary else replicas(self.wrt)
        else:
            fresh = tuple(p.detach().clone() for p in point)
        if wanted is None:
            return tuple(t.requires_grad_() for t in fresh)
        return tuple(t.requires_grad_(flag) for t, flag in zip(fresh, wanted, strict=True))

    def arguments(self, leaves: Sequence[torch.Tensor], *, as_given: bool = False) -> list[Any]:
        """Give the flat arguments of one call with `leaves` in the places of the differentiable inputs."""
        if self._wrt_alone:
            return list(leaves)
        handed = [
            leaf.view_as(leaf) if as_given and not t.is_leaf and leaf.requires_grad else leaf
            for leaf, t in zip(leaves, self.wrt, strict=True)
        ]
        flat_arguments = []
        for value, slot in zip(self._leaves, self._slot, strict=True):
            if slot is not None:
                flat_arguments.append(handed[slot])
            elif isinstance(value, torch.Tensor):
                flat_arguments.append(value.detach().clone() if not as_given else replicas((value,))[0])
            else:
                flat_arguments.append(value)
        return flat_arguments

    def reseed(self) -> None:
        """Put torch's generator where every call of a random function starts."""
        torch.random.set_rng_state(torch.Generator().manual_seed(self.seed).get_state())

    def apply(self, flat_arguments: list[Any]) -> Tensors:
        """Call the function; give its differentiable outputs, sparse ones made dense.

        Raises:
            ForwardRaised: Whatever the function raised, or outputs whose number or shapes changed.
        """
        if self.random:
            self.reseed()
        arguments = flat_arguments if self._flat_call else pytree.tree_unflatten(flat_arguments, self._spec)
        try:
            result = self.func(*arguments)
            leaves = (result,) if isinstance(result, torch.Tensor) else pytree.tree_leaves(result)
            outputs = tuple(strided(o) for o in leaves if is_differentiable(o))
        except Exception as error:
            raise ForwardRaised(error) from None
        shapes = [o.shape for o in outputs]
        if self.shapes is None:
            self.shapes = shapes
        elif self.shapes != shapes:
            raise ForwardRaised(CheckError(f"outputs have shapes {shapes}, at the inputs as given {self.shapes}"))
        return outputs

    def forward(
        self, point: Sequence[torch.Tensor] | None = None, *, wanted: Sequence[bool] | None = None
    ) -> tuple[Tensors, Tensors]:
        """Run the function on fresh leaves; give the leaves and the outputs with their graph."""
        leaves = self.leaves(point, wanted=wanted)
        return leaves, self.apply(self.arguments(leaves, as_given=point is None))

    def value(self, point: Sequence[torch.Tensor] | None = None) -> Tensors:
        """Run the function as it runs in training, and give the values alone."""
        return tuple(o.detach() for o in self.forward(point)[1])

    def gradient(
        self,
        point: Sequence[torch.Tensor] | None,
        v: Sequence[torch.Tensor | None],
        *,
        create_graph: bool = False,
        wanted: Sequence[bool] | None = None,
        fresh: bool = False,
    ) -> First:
        """Run forward and backward with the grad_outputs `v`; a None leaves that output unused.

        Args:
            point: The values of the inputs; None takes the inputs as given.
            v: The grad_outputs.
            create_graph: Whether the gradients carry a graph.
            wanted: Which inputs ask for a gradient; None means all.
            fresh: Whether the tensors of `point` are given away, and need no copying.

        Raises:
            ForwardRaised: The function refused the inputs.
            BackwardRaised: Its backward raised.
        """
        if fresh and point is not None:
            leaves = tuple(p.requires_grad_() for p in point)
            outputs = self.apply(self.arguments(leaves))
        else:
            leaves, outputs = self.forward(point, wanted=wanted)
        grads = backward(outputs, leaves, v, create_graph=create_graph)
        return First(outputs, grads, leaves)

    def second(
        self, point: Sequence[torch.Tensor] | None, v: Sequence[torch.Tensor], u: Sequence[torch.Tensor]
    ) -> Second:
        """Run forward, backward and the backward of ``<G, u>`` with respect to inputs and grad_outputs.

        Raises:
            ForwardRaised: The function refused the inputs.
            BackwardRaised: A backward raised; its `order` tells which.
        """
        return double_backward(*self.forward(point), v, u)


def double_backward(
    leaves: Tensors,
    outputs: Tensors,
    v: Sequence[torch.Tensor],
    u: Sequence[torch.Tensor],
    *,
    retain_graph: bool | None = None,
    as_given: bool = False,
) -> Second:
    """Run backward and the backward of ``<G, u>`` with respect to leaves and grad_outputs, on a graph at hand.

    Args:
        leaves: The inputs of the call.
        outputs: What it returned.
        v: The grad_outputs.
        u: The direction.
        retain_graph: Whether the graph is wanted again.
        as_given: Whether `v` is handed over itself, memory layout and all, and not a copy.

    Raises:
        BackwardRaised: A backward raised; its `order` tells which.
    """
    handed = tuple((t.detach() if as_given else t.detach().clone()).requires_grad_() for t in v)
    grads = backward(outputs, leaves, handed, create_graph=True)
    detached = tuple(g is not None and not g.requires_grad for g in grads)
    pairs = [(g, d) for g, d in zip(grads, u, strict=True) if g is not None and g.requires_grad]
    targets = (*leaves, *handed)
    results: Sequence[torch.Tensor | None] = (None,) * len(targets)
    if pairs and targets:
        try:
            results = differentiate(
                [g for g, _ in pairs],
                targets,
                [d if d.dtype is g.dtype and d.shape == g.shape else d.to(g.dtype).reshape(g.shape) for g, d in pairs],
                retain_graph=retain_graph,
            )
        except Exception as error:
            raise BackwardRaised(error, 2) from None
    if any(r is None for r in results) and (refusal := _refusal_in([g for g, _ in pairs])):
        raise BackwardRaised(NotImplementedError(refusal), 2)
    count = len(leaves)
    return Second(
        outputs,
        grads,
        leaves,
        hessian_u=materialize(results[:count], leaves),
        jacobian_u=materialize(results[count:], handed),
        detached=detached,
    )


def _refusal_in(roots: Sequence[torch.Tensor]) -> str:
    """Tell whether a graph holds a node that refuses to be differentiated but leads to nothing that is asked for.

    `once_differentiable` hangs its gradients on such a node: whoever asks for inputs by name gets None from it.
    """
    seen: set[torch.autograd.graph.Node] = set()
    nodes = [t.grad_fn for t in roots]
    while nodes and len(seen) < MOST_NODES:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node.name() in REFUSING_NODES:
            return "the gradient is marked as one that cannot be differentiated (once_differentiable)"
        nodes += [following for following, _ in node.next_functions]
    return ""


def backward(
    outputs: Sequence[torch.Tensor],
    leaves: Sequence[torch.Tensor],
    v: Sequence[torch.Tensor | None],
    *,
    create_graph: bool = False,
    retain_graph: bool | None = None,
) -> tuple[torch.Tensor | None, ...]:
    """Run one backward; an output without a graph, or with a None in `v`, takes no part."""
    pairs = [(o, g) for o, g in zip(outputs, v, strict=True) if o.requires_grad and g is not None]
    wanted = [x for x in leaves if x.requires_grad]
    if not pairs or not wanted:
        return (None,) * len(leaves)
    try:
        grads = differentiate(
            [o for o, _ in pairs],
            wanted,
            [g if g.dtype is o.dtype else g.to(o.dtype) for o, g in pairs],
            create_graph=create_graph,
            retain_graph=retain_graph,
        )
    except Exception as error:
        raise BackwardRaised(error, 1) from None
    if len(wanted) == len(leaves):
        return grads
    given = iter(grads)
    return tuple(next(given) if x.requires_grad else None for x in leaves)
