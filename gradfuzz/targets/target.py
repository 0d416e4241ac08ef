"""Targets: a differentiable function together with what its arguments may be."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from hypothesis import strategies as st

from gradfuzz.checker.verdict import Symptom
from gradfuzz.errors import TargetError
from gradfuzz.targets.place import canonical

# What the decorator and `Target` take beside the arguments of the function.
OPTIONS = ("name", "order", "stochastic", "detached", "checks")
ORDERS = (1, 2, 3)
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Target:
    """A function and the strategies of its arguments; it can be called like the function.

    Attributes:
        fn: The function.
        parameters: What each argument may be, in the order of the call; a name that starts with ``*`` is passed by
            keyword.
        name: The canonical address.
        order: The highest derivative that is promised.
        stochastic: Whether the function draws random numbers, and is seeded alike for each call.
        detached: The arguments whose gradient is cut on purpose.
        checks: The symptoms that are looked for; None means all.
        module: The name of the module that made it.
    """

    def __init__(
        self,
        fn: Callable[..., Any],
        parameters: Mapping[str, st.SearchStrategy[Any]],
        name: str | None = None,
        *,
        order: int = 2,
        stochastic: bool = False,
        detached: Iterable[str] = (),
        checks: Iterable[str] | None = None,
        module: str | None = None,
    ) -> None:
        if not callable(fn):
            raise TargetError(f"a target needs a function, got {fn!r}")
        # Whoever writes `name = Target(...)` at the top of a file makes a target of that file.
        self.module: str = module or sys._getframe(1).f_globals.get("__name__", "")
        self.fn = fn
        functools.update_wrapper(self, fn, updated=())
        self.parameters: Mapping[str, st.SearchStrategy[Any]] = MappingProxyType(_checked(fn, parameters))
        self.name: str = name or canonical(fn)
        self.order = order
        self.stochastic = stochastic
        self.detached = frozenset((detached,) if isinstance(detached, str) else detached)
        self.checks = None if checks is None else tuple((checks,) if isinstance(checks, str) else checks)
        self._check_options()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself."""
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        """Show the name and the arguments."""
        return f"<target {self.name}({', '.join(self.parameters)})>"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The names of the arguments without marks."""
        return tuple(name.removeprefix("*") for name in self.parameters)

    def named(self, name: str) -> Target:
        """Give the same target under another address."""
        return Target(
            self.fn,
            self.parameters,
            name,
            order=self.order,
            stochastic=self.stochastic,
            detached=self.detached,
            checks=self.checks,
            module=self.module,
        )

    def _check_options(self) -> None:
        if self.order not in ORDERS or isinstance(self.order, bool):
            raise TargetError(f"{self.name}: order={self.order!r} is not supported; use 1, 2 or 3")
        for argument in sorted(self.detached):
            if argument not in self.arguments:
                raise TargetError(
                    f"{self.name}: detached={argument!r} is no argument; declared are {', '.join(self.arguments)}"
                )
        known = [symptom.value for symptom in Symptom]
        for check in self.checks or ():
            if check not in known:
                raise TargetError(f"{self.name}: checks={check!r} is no symptom; known are {', '.join(known)}")


def _label(fn: Callable[..., Any]) -> str:
    return getattr(fn, "__name__", repr(fn))


def _checked(
    fn: Callable[..., Any], parameters: Mapping[str, st.SearchStrategy[Any]]
) -> dict[str, st.SearchStrategy[Any]]:
    """Compare a declaration with the signature, where there is one; mark what only goes by keyword."""
    for name, strategy in parameters.items():
        if not isinstance(strategy, st.SearchStrategy):
            raise TargetError(
                f"{_label(fn)}: {name}={strategy!r} is no strategy; write st.just({strategy!r}) for a fixed value"
            )
    if not parameters:  # enough to replay a case, which brings its arguments along
        return {}
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):  # most of torch's own functions have none
        return dict(parameters)
    only = {p.name for p in signature.parameters.values() if p.kind is p.KEYWORD_ONLY}
    marked = {f"*{name}" if name in only else name: strategy for name, strategy in parameters.items()}
    positional = [name for name in marked if not name.startswith("*")]
    takes = [p.name for p in signature.parameters.values() if p.kind in _POSITIONAL]
    for place, name in enumerate(positional):
        if name in takes and takes.index(name) != place:
            raise TargetError(
                f"{_label(fn)}{signature}: {name!r} is declared as argument {place + 1} but is argument "
                f"{takes.index(name) + 1}; declare the arguments in the order of the call"
            )
    try:
        signature.bind(*positional, **{name.removeprefix("*"): None for name in marked if name.startswith("*")})
    except TypeError as error:
        declared = ", ".join(marked)
        raise TargetError(f"{_label(fn)}{signature} cannot be called with ({declared}): {error}") from None
    return marked


def target(
    *,
    name: str | None = None,
    order: int = 2,
    stochastic: bool = False,
    detached: Iterable[str] = (),
    checks: Iterable[str] | None = None,
    **parameters: st.SearchStrategy[Any],
) -> Callable[[Callable[..., Any]], Target]:
    """Declare the function below as a target: ``@target(x=gst.tensors("*s"))``.

    The function can still be called. Arguments that are named like an option are declared with `Target`.
    """
    for option, value in zip(OPTIONS, (name, order, stochastic, detached, checks), strict=True):
        if isinstance(value, st.SearchStrategy):
            raise TargetError(
                f"{option}= is an option of the decorator; declare an argument of that name with "
                f"gradfuzz.Target(function, {{'{option}': ...}})"
            )

    def declare(fn: Callable[..., Any]) -> Target:
        if isinstance(fn, type):
            raise TargetError(f"{fn.__name__} is a class; declare a function that applies it")
        module = getattr(fn, "__module__", None)
        return Target(
            fn,
            parameters,
            name,
            order=order,
            stochastic=stochastic,
            detached=detached,
            checks=checks,
            module=module or sys._getframe(1).f_globals.get("__name__", ""),
        )

    return declare
