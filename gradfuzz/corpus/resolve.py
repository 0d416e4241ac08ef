"""The targets of corpus files: the project's own, torch's differentiable functions, and what the caller allows."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gradfuzz.corpus.locate import Place, is_allowed, locate_file, locate_module, refused, roots_of
from gradfuzz.corpus.torch_table import is_torch, torch_function
from gradfuzz.targets import Target, load_file, load_module
from gradfuzz.targets.load import attribute_in, import_named

# What to do where an address leads nowhere; one line, as it ends a message.
REMEDY = "replay it from Python with target=..."


def _is_defined_in(path: Path, value: Any) -> bool:
    """Whether a file defines a function, rather than imports it."""
    try:
        return Path(inspect.getfile(inspect.unwrap(value))).resolve() == path
    except (TypeError, ValueError):  # builtins, and what is no function
        return False


def _member(address: str, name: str, value: Any) -> Callable[..., Any]:
    """Follow a dotted name through classes, whose functions stand in them and are not inherited."""
    for part in name.split(".")[1:]:
        value = inspect.unwrap(getattr(value, part)) if isinstance(value, type) and part in vars(value) else None
    if value is None or not callable(value):
        raise refused(address, f"there is no function {name!r}; {REMEDY}")
    found: Callable[..., Any] = value
    return found


def _undeclared(address: str, place: Place) -> Target:
    """Give a function of a file that is no declared target, if the file defines it.

    What a file imports is not its own: one that imports ``os`` does not offer ``os.system``.
    """
    parts = place.name.split(".")
    if not all(part.isidentifier() and not part.startswith("__") for part in parts):
        raise refused(address, f"{place.name!r} is no name that a file gives; {REMEDY}")
    value = _member(address, place.name, attribute_in(place.path, parts[0]))
    if not _is_defined_in(place.path, value):
        raise refused(address, f"{place.name!r} is not defined in {place.path}; name the file that defines it")
    return Target(value, {}, address)


def _from_file(address: str, place: Place) -> Target:
    declared = load_file(place.path)
    return declared[place.name] if place.name in declared else _undeclared(address, place)


def _from_module(address: str) -> Target:
    """Give the target of an importable module that the caller allowed."""
    module, _, name = address.partition(":")
    declared = load_module(module)
    if name in declared:
        return declared[name]
    value = vars(import_named(module)).get(name)
    if not callable(value):
        raise refused(address, f"{module} has no function {name!r}")
    return Target(value, {}, address)


class Resolver:
    """Finds the targets of corpus files; an address is resolved once."""

    def __init__(self, *, allow_import: tuple[str, ...] = (), root: Path | None = None) -> None:
        """Take the modules that may be imported, and where to look instead of the files' own projects."""
        self._allow_import = allow_import
        self._root = root
        self._known: dict[tuple[str, tuple[Path, ...]], Target] = {}

    def target(self, address: str, corpus_file: Path) -> Target:
        """Give the target at an address; a TargetError of one line says why it is not there or not used."""
        roots = roots_of(corpus_file) if self._root is None else (self._root,)
        if (address, roots) not in self._known:
            # Named by the file, whose signature the findings are compared with.
            self._known[address, roots] = self._resolve(address, roots).named(address)
        return self._known[address, roots]

    def _resolve(self, address: str, roots: tuple[Path, ...]) -> Target:
        if is_torch(address):
            return Target(torch_function(address), {}, address)
        is_file = "::" in address
        if not is_file and ":" not in address:
            raise refused(address, f"is neither file.py::name nor package.module:name; {REMEDY}")
        locate = locate_file if is_file else locate_module
        for root in roots:
            if (place := locate(address, root, allow_import=self._allow_import)) is not None:
                return _from_file(address, place)
        module = address.partition(":")[0]
        if not is_file and is_allowed(module, self._allow_import):
            return _from_module(address)
        looked = " nor ".join(str(root) for root in roots)
        if is_file:
            raise refused(address, f"there is no {module} in {looked}")
        raise refused(address, f"there is no {module} in {looked}; --allow-import {module} allows an installed one")
