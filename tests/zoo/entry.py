"""How one faulty differentiable function is described beside its correct twin, in plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

ENTRIES: list[Entry] = []


@dataclass(frozen=True)
class T:
    """A tensor argument: its dimensions in jaxtyping's notation, and what its values may be."""

    dims: str
    constraint: str = "real"  # a name from torch.distributions.constraints, or "symmetric"
    dtypes: tuple[str, ...] = ()  # none leaves the choice to the fuzzer
    bounds: tuple[float, float] | None = None
    integer_below: int | str | None = None  # makes it an index: below a number, or below the size of a dimension


@dataclass(frozen=True)
class Int:
    """An int argument between two limits, both included."""

    low: int
    high: int


@dataclass(frozen=True)
class Float:
    """A float argument between two limits, both included."""

    low: float
    high: float


@dataclass(frozen=True)
class OneOf:
    """An argument that is one of a few values."""

    choices: tuple[Any, ...]


@dataclass(frozen=True)
class Entry:
    """One faulty function and its twin; a name of `args` that starts with ``*`` is passed by keyword."""

    name: str
    kind: str
    args: dict[str, Any]
    faulty: Callable[..., Any]
    fixed: Callable[..., Any]
    source: str = ""
    options: dict[str, Any] = field(default_factory=dict)


def entry(name, kind, args, faulty, fixed, source="", **options) -> None:
    """Add an entry; `options` are those of a gradfuzz target."""
    ENTRIES.append(Entry(name, kind, args, faulty, fixed, source, options))
