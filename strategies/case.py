"""Whole cases: arguments, sharing, gradients asked for, grad_outputs and the plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Protocol

import torch
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from gradfuzz.case import Argument, Case, Plan, StorageSpec, TensorSpec, Value
from gradfuzz.errors import StrategyError
from gradfuzz.strategies import constraint as constrained
from gradfuzz.strategies.common import Common, together
from gradfuzz.strategies.device import present
from gradfuzz.strategies.dtype import FLOATING, is_differentiable, name_of, names_of
from gradfuzz.strategies.grad_output import draw_grad_output
from gradfuzz.strategies.tensor import Recipe, Tensors

# The size and dtype of each differentiable output of a case, or None where they cannot be told.
Outputs = Sequence[tuple[tuple[int, ...], torch.dtype]] | None
Probe = Callable[[Case], Outputs]

_REAL = constrained.label(constrained.constraint_of("real"))

# Each rare thing is one of these, at most one a case: a reproducer then shows the one that matters.
_ORDINARY, _MASKED, _SAME, _VIEWS, _NON_LEAF, _UNDEFINED = (
    "ordinary",
    "masked",
    "same",
    "views",
    "non-leaf",
    "undefined",
)
_TWISTS = ((_ORDINARY, 33), (_MASKED, 9), (_SAME, 3), (_VIEWS, 1), (_NON_LEAF, 2), (_UNDEFINED, 2))
# Otherwise the checker draws generic grad_outputs. Hypothesis mutates what it drew towards the simple, which leaves
# about one case in three.
_explicit = st.booleans()
_seed = st.integers(0, 2**31 - 1)


class TargetLike(Protocol):
    """What `cases` asks of a target."""

    @property
    def name(self) -> str:
        """The canonical address."""

    @property
    def fn(self) -> Callable[..., Any]:
        """The function itself."""

    @property
    def parameters(self) -> Mapping[str, st.SearchStrategy[Any]]:
        """What each argument may be; a name that starts with ``*`` is passed by keyword."""

    @property
    def order(self) -> int:
        """The highest derivative the target promises."""


def constraint_of_argument(strategy: st.SearchStrategy[Any]) -> constrained.Constraint | None:
    """Give the constraint of an argument declared by `tensors`, alone or as one of several branches."""
    found = None
    for branch in (strategy,) if isinstance(strategy, Tensors) else strategy.branches:
        if isinstance(branch, Tensors) and not constrained.is_real(branch.constraint):
            if found is not None and constrained.label(found) != constrained.label(branch.constraint):
                raise StrategyError(f"{strategy!r} has branches of different constraints; declare one of them")
            found = branch.constraint
    return found


def _frozen(name: str, value: Any) -> Value:
    """Give a drawn argument as plain data; refuse what a case cannot hold."""
    match value:
        case (
            None | bool() | int() | float() | complex() | str() | torch.dtype() | torch.layout() | torch.memory_format()
        ):
            return value
        case list() | tuple():
            return tuple(_frozen(name, part) for part in value)
        case Recipe():
            raise StrategyError(
                f"argument {name!r} is a list that holds tensors, which a case cannot say yet; "
                "declare a function that takes them one by one"
            )
        case torch.Tensor():
            raise StrategyError(f"argument {name!r} draws live tensors; declare it with gst.tensors(...)")
    raise StrategyError(
        f"argument {name!r} draws a {type(value).__name__}, which a case cannot hold; "
        "draw None, numbers, text, tuples of them, or a dtype, layout or memory format of torch"
    )


@dataclass(slots=True)
class _Assembly:
    """A case while it is put together."""

    storages: list[StorageSpec] = field(default_factory=list)
    inputs: list[TensorSpec] = field(default_factory=list)
    recipes: list[Recipe] = field(default_factory=list)
    arguments: list[Argument] = field(default_factory=list)

    def add(self, name: str, recipe: Recipe) -> int:
        self.storages.append(recipe.storage)
        self.recipes.append(recipe)
        asks = recipe.differentiable if recipe.requires_grad is None else recipe.requires_grad
        self.inputs.append(replace(recipe.view, storage=len(self.storages) - 1, requires_grad=asks))
        return len(self.inputs) - 1

    def alike(self) -> list[tuple[int, int]]:
        """Pairs of inputs that could be one tensor: same size, dtype and constraint, both differentiable."""
        pairs = []
        for j, b in enumerate(self.recipes):
            for i, a in enumerate(self.recipes[:j]):
                same = a.view.size == b.view.size and a.storage.dtype == b.storage.dtype
                if same and a.differentiable and a.constraint == b.constraint and a.requires_grad == b.requires_grad:
                    pairs.append((i, j))
        return pairs

    def drop_unused(self) -> None:
        """Forget inputs that no argument names, and storages that no input uses."""
        used = sorted({a.input for a in self.arguments if a.input is not None})
        place = {old: new for new, old in enumerate(used)}
        self.arguments = [a if a.input is None else replace(a, input=place[a.input]) for a in self.arguments]
        self.inputs = [self.inputs[i] for i in used]
        stored = sorted({spec.storage for spec in self.inputs})
        self.storages = [self.storages[i] for i in stored]
        self.inputs = [replace(spec, storage=stored.index(spec.storage)) for spec in self.inputs]


@lru_cache(maxsize=64)
def _twist(fitting: tuple[str, ...]) -> st.SearchStrategy[str]:
    return st.sampled_from([name for name, weight in _TWISTS if name in fitting for _ in range(weight)])


@lru_cache(maxsize=64)
def _below(count: int) -> st.SearchStrategy[int]:
    return st.integers(0, count - 1)


def _arguments(draw: st.DrawFn, target: TargetLike) -> _Assembly:
    made = _Assembly()
    for declared, strategy in target.parameters.items():
        name = declared.removeprefix("*")
        kind: Any = "keyword" if declared.startswith("*") else "positional"
        value = draw(strategy)
        if isinstance(value, Recipe):
            if value.constraint != _REAL and constraint_of_argument(strategy) is None:
                raise StrategyError(
                    f"argument {name!r}: a constraint must be declared by gst.tensors itself, not under map or lists"
                )
            made.arguments.append(Argument(name, kind, input=made.add(name, value)))
        else:
            made.arguments.append(Argument(name, kind, value=_frozen(name, value)))
    return made


def _twisted(draw: st.DrawFn, made: _Assembly) -> tuple[bool, ...]:
    """Draw at most one rare thing and put it into the assembly; give the second-order undefined mask."""
    asking = [i for i, spec in enumerate(made.inputs) if spec.requires_grad]
    free = [i for i in asking if made.recipes[i].requires_grad is None]
    pairs = made.alike()
    fitting = [_ORDINARY]
    if free and len(asking) > 1:
        fitting.append(_MASKED)
    if pairs:
        fitting += [_SAME, _VIEWS]
    if asking:
        fitting.append(_NON_LEAF)
    if len(asking) > 1:
        fitting.append(_UNDEFINED)
    match draw(_twist(tuple(fitting))):
        case "masked":
            kept = asking[draw(_below(len(asking)))]
            for i in free:
                if i != kept and (len(asking) == 2 or draw(st.booleans())):
                    made.inputs[i] = replace(made.inputs[i], requires_grad=False)
        case "same":
            i, j = pairs[draw(_below(len(pairs)))]
            made.arguments = [replace(a, input=i) if a.input == j else a for a in made.arguments]
        case "views":
            i, j = pairs[draw(_below(len(pairs)))]
            made.inputs[j] = replace(made.inputs[i], requires_grad=made.inputs[j].requires_grad)
        case "non-leaf":
            i = asking[draw(_below(len(asking)))]
            made.inputs[i] = replace(made.inputs[i], leaf=False)
        case "undefined":
            dropped = asking[draw(_below(len(asking)))]
            return tuple(i == dropped for i in range(len(made.inputs)))
    return ()


def outputs_of(target: TargetLike, case: Case) -> Outputs:
    """Run the forward once to see its outputs; the random generator is left as it was."""
    state = torch.random.get_rng_state()
    call = case.build()
    args, kwargs = call.arguments(call.inputs)
    try:
        with torch.no_grad():
            result = target.fn(*args, **kwargs)
    except Exception:
        return None  # a refused input: the checker says so, with the reason
    finally:
        torch.random.set_rng_state(state)
    leaves = pytree.tree_leaves(result)
    tensors = [x for x in leaves if isinstance(x, torch.Tensor) and is_differentiable(name_of(x.dtype))]
    return [(tuple(x.shape), x.dtype) for x in tensors]


def _with_grad_outputs(draw: st.DrawFn, case: Case, outputs: Outputs) -> Case:
    if not outputs:
        return case
    device = next((s.device for s in case.storages), "cpu")
    defined = draw(_below(len(outputs))) if len(outputs) > 1 else 0
    storages = list(case.storages)
    grads: list[TensorSpec | None] = []
    for i, (size, dtype) in enumerate(outputs):
        made = draw_grad_output(draw, size, name_of(dtype), device=device, salt=i, spare=i != defined)
        if made is None:
            grads.append(None)
            continue
        storages.append(made.storage)
        grads.append(replace(made.view, storage=len(storages) - 1))
    return replace(case, storages=tuple(storages), grad_outputs=tuple(grads))


@st.composite
def _cases(
    draw: st.DrawFn, target: TargetLike, dtypes: tuple[str, ...], devices: tuple[str, ...], probe: Probe
) -> Case:
    made = together(lambda _: _arguments(draw, target), Common(dtypes, devices))
    undefined = _twisted(draw, made)
    made.drop_unused()
    if len(undefined) != len(made.inputs):
        undefined = ()
    plan = Plan(order=target.order, undefined=undefined, seed=draw(_seed))
    case = Case(target.name, tuple(made.storages), tuple(made.inputs), tuple(made.arguments), plan=plan)
    if draw(_explicit):
        case = _with_grad_outputs(draw, case, probe(case))
    return case


def cases(
    target: TargetLike,
    *,
    dtypes: torch.dtype | str | Iterable[torch.dtype | str] | None = None,
    devices: str | Iterable[str] = "cpu",
    probe: Probe | None = None,
) -> st.SearchStrategy[Case]:
    """Cases of a target: frozen plain data, the same for the same draws.

    Shrinks towards what each argument's strategy shrinks to, every gradient asked for, no two arguments sharing
    memory, grad_outputs left to the checker, and seed 0.

    Args:
        target: Anything with a name, a function, parameters and an order.
        dtypes: The dtypes for tensors that declare none; None stands for the real floating ones.
        devices: The devices to be on, one a case.
        probe: Tells the size and dtype of each output of a case; by default its forward is run.
    """
    if not target.parameters:
        raise StrategyError(f"{target.name} declares no arguments; a derivative needs at least one tensor")
    names = FLOATING if dtypes is None else names_of(dtypes)
    for dtype in names:
        if not is_differentiable(dtype):
            raise StrategyError(f"dtypes={dtype!r} carries no gradient; give floating or complex dtypes")
    return _cases(target, names, present(devices), probe or (lambda case: outputs_of(target, case)))
