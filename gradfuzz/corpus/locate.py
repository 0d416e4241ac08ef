"""Where the target of a corpus file lies: found by walking folders, with nothing imported.

A corpus file is data that anyone may send. Its target decides whose code runs, so an address is followed only
into the project that the corpus belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from gradfuzz.errors import TargetError
from gradfuzz.targets.place import INSTALLED, ROOT_MARKS, project_root

# The file that marks a virtual environment.
ENVIRONMENT_MARK = "pyvenv.cfg"
# Where a project keeps its packages: in its root, or under src.
PACKAGE_FOLDERS = (".", "src")


@dataclass(frozen=True, slots=True)
class Place:
    """A name in a file.

    Attributes:
        path: The file, with all symbolic links resolved.
        name: What is asked of it.
    """

    path: Path
    name: str


def roots_of(path: Path) -> tuple[Path, ...]:
    """Give the projects that a corpus file may belong to: the one it lies in, and the one that is worked in."""
    above = [folder for folder in path.absolute().parents if any((folder / mark).exists() for mark in ROOT_MARKS)]
    return tuple(dict.fromkeys((*above[:1], project_root())))


def is_allowed(module: str, allow_import: tuple[str, ...]) -> bool:
    """Whether a module or a package above it is among those named by the caller."""
    return any(module == name or module.startswith(f"{name}.") for name in allow_import)


def refused(address: str, reason: str) -> TargetError:
    """Make the error that names a target and says why it is not used."""
    return TargetError(f"target {address!r}: {reason}")


def _walk(address: str, root: Path, parts: tuple[str, ...]) -> Path | None:
    """Follow names down from the root, each of which must stay inside; None where one is missing."""
    root = root.resolve()
    path = root
    for part in parts:
        try:
            path = (path / part).resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, RuntimeError, ValueError) as error:  # loops of links, forbidden names
            raise refused(address, f"{part!r} cannot be followed: {error}") from None
        if not path.is_relative_to(root):
            raise refused(address, f"{part!r} leads out of the project, {root}")
    return path


def _is_installed(path: Path, root: Path) -> bool:
    """Whether a file belongs to an environment rather than to the project."""
    if any(part.lower() in INSTALLED for part in path.parts):
        return True
    root = root.resolve()
    inside = path.relative_to(root).parents
    return any((root / folder / ENVIRONMENT_MARK).exists() for folder in inside if folder != Path())


def _checked(address: str, path: Path, root: Path, *, allowed: bool) -> Path:
    if not path.is_file() or path.suffix != ".py":
        raise refused(address, f"{path} is not a Python file")
    if not allowed and _is_installed(path, root):
        raise refused(address, f"{path} is an installed package; --allow-import names modules that may be imported")
    return path


def locate_file(address: str, root: Path, *, allow_import: tuple[str, ...] = ()) -> Place | None:
    """Find ``path/file.py::name`` under a project's root; a TargetError says why it may not be used."""
    file, _, name = address.partition("::")
    pure = PurePosixPath(file)
    if pure.is_absolute() or "\\" in file or ":" in file:
        raise refused(address, "must be relative to the project, with / between folders")
    if ".." in pure.parts:
        raise refused(address, "must not contain '..'")
    path = _walk(address, root, pure.parts)
    if path is None:
        return None
    return Place(_checked(address, path, root, allowed=file in allow_import), name)


def locate_module(address: str, root: Path, *, allow_import: tuple[str, ...] = ()) -> Place | None:
    """Find ``package.module:name`` under a project's root; None where the project has no such module."""
    module, _, name = address.partition(":")
    parts = tuple(module.split("."))
    if not all(part.isidentifier() for part in parts):
        raise refused(address, "a module is named by identifiers with dots between")
    for folder in PACKAGE_FOLDERS:
        start = () if folder == "." else (folder,)
        for tail in ((*parts[:-1], f"{parts[-1]}.py"), (*parts, "__init__.py")):
            path = _walk(address, root, (*start, *tail))
            if path is not None:
                return Place(_checked(address, path, root, allowed=is_allowed(module, allow_import)), name)
    return None
