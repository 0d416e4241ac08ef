"""Where a function lives, as the canonical address that names it in reports and corpora."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# What marks the top of a project; the working folder stands in where neither is found.
ROOT_MARKS = ("pyproject.toml", ".git")
# Folders of installed packages: what lies there is no part of a project.
INSTALLED = ("site-packages", "dist-packages")
# Where torch's public functions are found by identity: most of them do not know their module.
TORCH_MODULES = ("torch", "torch.nn.functional", "torch.linalg", "torch.special", "torch.fft")


def _root_above(folder: Path) -> Path | None:
    for candidate in (folder, *folder.parents):
        if any((candidate / mark).exists() for mark in ROOT_MARKS):
            return candidate
    return None


def project_root() -> Path:
    """Give the top of the project that the working folder is in, else the working folder."""
    here = Path.cwd()
    return _root_above(here) or here


def file_address(path: Path, name: str) -> str:
    """Name something in a file: the POSIX path relative to the project, ``::``, the name."""
    path = path.resolve()
    root = project_root()
    if not path.is_relative_to(root):
        root = _root_above(path.parent) or path.parent
    return f"{path.relative_to(root).as_posix()}::{name}"


def is_installed(path: Path) -> bool:
    """Whether a file is part of an installed package or of Python itself."""
    return any(part in INSTALLED for part in path.parts) or path.is_relative_to(sys.base_prefix)


def _in_torch(fn: Callable[..., Any]) -> str | None:
    """Find one of torch's own functions by the name that people call it by."""
    if inspect.isfunction(fn) and not (fn.__module__ or "").startswith("torch"):
        return None
    for module in TORCH_MODULES:
        there = vars(sys.modules[module]) if module in sys.modules else {}
        own = getattr(fn, "__name__", "")
        name = own if there.get(own) is fn else next((key for key, value in there.items() if value is fn), None)
        if name is not None and not name.startswith("_"):
            return f"{module}:{name}"
    return None


def canonical(fn: Callable[..., Any]) -> str:
    """Name a function by its file where that is the user's own, else ``module:name``."""
    owner = getattr(fn, "__self__", None)
    home: Any = owner if isinstance(owner, type) else fn
    # `apply` is inherited from Function: what tells one from another is the class it is taken from.
    name = f"{owner.__qualname__}.{fn.__name__}" if isinstance(owner, type) else getattr(fn, "__qualname__", None)
    if name is None:
        home, name = type(fn), type(fn).__qualname__
    if (known := _in_torch(fn)) is not None:
        return known
    try:
        path = Path(inspect.getfile(inspect.unwrap(home))).resolve()
    except (TypeError, OSError):  # built in, or made in a notebook
        path = None
    if path is not None and path.is_file() and not is_installed(path):
        return file_address(path, name)
    return f"{getattr(home, '__module__', None) or 'builtins'}:{name}"
