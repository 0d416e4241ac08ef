"""Addresses as a user types them: a folder, a file, ``file::name``, ``module:name``."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

from gradfuzz.errors import TargetError
from gradfuzz.targets.load import attribute_in, import_named, load_file, load_module, module_name
from gradfuzz.targets.place import INSTALLED, is_installed
from gradfuzz.targets.target import Target

# Folders that hold no targets of the project.
_SKIPPED = (*INSTALLED, "__pycache__", "build", "dist", "node_modules", "venv")


def _undeclared(address: str, name: str, value: Any, *, module: str, own: bool) -> TargetError:
    """Say how to declare what was named: where it stands if the user wrote it there, else beside it."""
    if not callable(value):
        return TargetError(f"{address}: {name} is a {type(value).__name__}, not a function")
    try:
        names = [p.name for p in inspect.signature(value).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        names = []
    names = names or ["x"]
    if own and getattr(value, "__module__", None) == module:
        arguments = ", ".join(f'{n}=gst.tensors("*s")' for n in names)
        how = f"write @gradfuzz.target({arguments}) above it, with what each argument may be"
    else:
        pairs = ", ".join(f'"{n}": gst.tensors("*s")' for n in names)
        called = name if own else f"{module}.{name}"
        how = f"declare it in a file of yours, as {name} = gradfuzz.Target({called}, {{{pairs}}})"
    return TargetError(f"{address}: {name} is not declared as a target; {how}")


def _missing(address: str, name: str, there: dict[str, Target]) -> TargetError:
    known = f"its targets are {', '.join(there)}" if there else "it declares no targets"
    return TargetError(f"{address}: there is no {name!r}; {known}")


def _in_file(address: str, path: Path, name: str) -> list[Target]:
    if not path.exists():
        raise TargetError(f"{address}: there is no file {path}")
    found = load_file(path)
    if name in found:
        return [found[name]]
    value = attribute_in(path, name)
    if isinstance(value, Target):  # imported into the file, and asked for by that name
        return [value]
    if value is None:
        raise _missing(address, name, found)
    raise _undeclared(address, name, value, module=module_name(path), own=True)


def _in_module(address: str, module: str, name: str) -> list[Target]:
    found = load_module(module)
    if name in found:
        return [found[name]]
    loaded = import_named(module)
    value = getattr(loaded, name, None)
    if isinstance(value, Target):
        return [value]
    if value is None:
        raise _missing(address, name, found)
    file = loaded.__file__
    own = file is not None and not is_installed(Path(file))
    raise _undeclared(address, name, value, module=module, own=own)


def _files_below(folder: Path) -> list[Path]:
    files: list[Path] = []
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(
            f
            for f in folders
            if f not in _SKIPPED and not f.startswith(".") and not (Path(root) / f / "pyvenv.cfg").exists()
        )
        files += [Path(root) / name for name in sorted(names) if name.endswith(".py")]
    return files


def _mentions_targets(path: Path) -> bool:
    """Whether a file may declare targets: others of a folder are not run, for they may do anything."""
    return b"gradfuzz" in path.read_bytes()


def resolve(address: str) -> list[Target]:
    """Give the targets of an address, in the order they are declared.

    A folder or a file stands for its declared targets; ``file.py::name`` and ``package.module:name`` for one.

    Raises:
        TargetError: Nothing is there, or it cannot be loaded; the message says what to do.
    """
    if not address or not isinstance(address, str):
        raise TargetError(f"{address!r} is no address; write path/file.py, path/file.py::name or package.module:name")
    file, mark, name = address.partition("::")
    if mark:
        return _in_file(address, Path(file), name)
    path = Path(address)
    if path.is_dir():
        found = [t for file in _files_below(path) if _mentions_targets(file) for t in load_file(file).values()]
        if not found:
            raise TargetError(
                f"{address}: no file in this folder declares a target; decorate one with @gradfuzz.target"
            )
        return found
    if path.suffix == ".py" or path.exists():
        if not path.exists():
            raise TargetError(f"{address}: there is no such file")
        found = list(load_file(path).values())
        if not found:
            raise TargetError(f"{address}: the file declares no target; decorate a function with @gradfuzz.target")
        return found
    module, mark, name = address.partition(":")
    if mark and module and name:
        return _in_module(address, module, name)
    raise TargetError(
        f"{address}: there is no such file or folder; write path/file.py, path/file.py::name or package.module:name"
    )
