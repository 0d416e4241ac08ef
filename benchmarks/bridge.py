"""Zoo entries as targets of gradfuzz."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, Protocol, cast

from hypothesis import strategies as st
from torch.autograd import Function

import gradfuzz
from gradfuzz import strategies as gst

ROOT = Path(__file__).resolve().parent.parent
OWN_ZOO = ROOT / "tests" / "zoo"

Which = Literal["faulty", "fixed"]

# A zoo's description of an entry, under the name by which its modules import it.
_DESCRIPTION = "entry"


class ZooError(Exception):
    """A folder holds no zoo, or an entry is described in words that the bridge does not know."""


class Entry(Protocol):
    """What a zoo says of one faulty function and its twin; a zoo brings its own class."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def args(self) -> Mapping[str, Any]: ...  # noqa: D102
    @property
    def faulty(self) -> Callable[..., Any]: ...  # noqa: D102
    @property
    def fixed(self) -> Callable[..., Any]: ...  # noqa: D102
    @property
    def options(self) -> Mapping[str, Any]: ...  # noqa: D102


def _load_module(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ZooError(f"{path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def load(folder: Path = OWN_ZOO) -> list[Entry]:
    """Give the entries of a zoo, in the order of its modules; each call imports them anew."""
    description = folder / f"{_DESCRIPTION}.py"
    if not description.is_file():
        raise ZooError(f"{folder} holds no {_DESCRIPTION}.py; name the folder of a zoo")
    outer = sys.modules.get(_DESCRIPTION)
    try:
        entries = _load_module(_DESCRIPTION, description).ENTRIES
        for path in sorted(folder.glob("*.py")):
            # A zoo's own loader is no module of entries; it says so by its name.
            if path != description and not path.stem.startswith("check_"):
                _load_module(f"{folder.name}_{path.stem}", path)
    finally:
        if outer is None:
            sys.modules.pop(_DESCRIPTION, None)
        else:
            sys.modules[_DESCRIPTION] = outer
    return cast("list[Entry]", list(entries))


def strategy(argument: Any) -> st.SearchStrategy[Any]:
    """Give the strategy for one argument of an entry; the classes of two zoos agree in name and fields."""
    match type(argument).__name__:
        case "T" if argument.integer_below is not None:
            return gst.indices(argument.dims, below=argument.integer_below)
        case "T":
            return gst.tensors(
                argument.dims,
                dtype=argument.dtypes or None,
                constraint=argument.constraint,
                bounds=argument.bounds,
            )
        case "Int":
            return st.integers(argument.low, argument.high)
        case "Float":
            return st.floats(argument.low, argument.high)
        case "OneOf":
            return st.sampled_from(argument.choices)
        case other:
            raise ZooError(f"an argument described as {other} is unknown; use T, Int, Float or OneOf")


def target(entry: Entry, which: Which, name: str | None = None) -> gradfuzz.Target:
    """Give the faulty function of an entry, or its twin, as a target."""
    fn = entry.faulty if which == "faulty" else entry.fixed
    parameters = {argument: strategy(described) for argument, described in entry.args.items()}
    return gradfuzz.Target(fn, parameters, name or f"{entry.name}_{which}", **entry.options)


def has_forward_rule(fn: Callable[..., Any]) -> bool:
    """Whether a function is the ``apply`` of a Function that defines ``jvp``."""
    owner = getattr(fn, "__self__", None)
    return isinstance(owner, type) and issubclass(owner, Function) and owner.jvp is not Function.jvp


def blames_torch(entry: Entry, mode: str) -> bool:
    """Whether a finding on the twin is torch's: nested forward mode loses the outer tangent of any ``jvp``."""
    return mode == "fwd-fwd" and has_forward_rule(entry.fixed)
