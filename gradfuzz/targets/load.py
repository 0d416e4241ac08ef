"""Loading the files and modules that declare targets."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import traceback
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from gradfuzz.errors import GradfuzzError, TargetError
from gradfuzz.targets.place import file_address, is_installed
from gradfuzz.targets.target import Target

# By file: the digest of what was loaded, and the module it became.
_loaded: dict[Path, tuple[str, ModuleType]] = {}


class _FreshLoader(SourceFileLoader):
    """Compiles the source each time: cached bytecode is matched by whole seconds, and a file may change within one."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        code: CodeType = self.source_to_code(self.get_data(path), path)
        return code


def _why(error: BaseException, path: Path) -> str:
    """Say on one line what was raised, and on which line of the file."""
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename) == path]
    if isinstance(error, SyntaxError) and error.lineno is not None and error.filename == str(path):
        lines = [error.lineno]
    where = f"line {lines[-1]}: " if lines and lines[-1] is not None else ""
    text = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
    return f"{where}{type(error).__name__}: {text}" if text else f"{where}{type(error).__name__}"


def _package_of(path: Path) -> tuple[str, Path] | None:
    """Give the dotted name of a file in a package, and the folder that its top package lies in."""
    folder = path.parent
    parts = [] if path.name == "__init__.py" else [path.stem]
    while (folder / "__init__.py").is_file():
        parts.insert(0, folder.name)
        folder = folder.parent
    if folder == path.parent or not all(part.isidentifier() for part in parts):
        return None
    return ".".join(parts), folder


def _importable(folder: Path) -> None:
    """Let `import sibling` work, as it does for a script in that folder."""
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _in_package(path: Path) -> ModuleType | None:
    """Import a file of a package by its real name, unless that name belongs to another file here."""
    place = _package_of(path)
    if place is None:
        return None
    name, folder = place
    _importable(folder)
    importlib.invalidate_caches()
    try:
        spec = importlib.util.find_spec(name)  # imports the packages above
    except ModuleNotFoundError:  # the top package is another one of that name
        return None
    if spec is None or spec.origin is None or Path(spec.origin).resolve() != path:
        return None
    return importlib.import_module(name)


def _alone(path: Path, digest: str) -> ModuleType:
    """Run a file as a module of a private name, which nothing else can be imported under."""
    name = f"_gradfuzz_{sha256(str(path).encode()).hexdigest()[:8]}_{digest[:8]}_{path.stem}"
    loader = _FreshLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    if spec is None:
        raise TargetError(f"{path} cannot be loaded as a module")
    module = importlib.util.module_from_spec(spec)
    _importable(path.parent)
    sys.modules[name] = module  # dataclasses and annotations look their module up there
    try:
        loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _module_of(path: Path) -> ModuleType:
    """Load a file once; again only when it has changed since."""
    try:
        digest = sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise TargetError(f"{path}: {error.strerror or error}") from None
    known = _loaded.get(path)
    if known is not None and known[0] == digest:
        return known[1]
    try:
        # A changed file of a package runs alone: reloading it in place would leave its importers with the old one.
        module = (_in_package(path) if known is None else None) or _alone(path, digest)
    except GradfuzzError as error:
        raise TargetError(f"{path}: {_why(error, path)}") from error
    except Exception as error:
        raise TargetError(f"{path}: {_why(error, path)}") from error
    except SystemExit as error:
        raise TargetError(f"{path}: {_why(error, path)}; guard it with if __name__ == '__main__'") from error
    _loaded[path] = (digest, module)
    return module


def targets_in(module: ModuleType) -> dict[str, Target]:
    """The targets that a module made itself, by the names it gave them; the imported ones belong elsewhere."""
    return {
        name: value
        for name, value in vars(module).items()
        if isinstance(value, Target) and value.module == module.__name__
    }


def load_file(path: Path) -> dict[str, Target]:
    """Give the targets of a Python file by name, under their canonical addresses.

    Raises:
        TargetError: The file is missing or raises when it runs; the message names file, line and exception.
    """
    path = path.resolve()
    if not path.is_file() or path.suffix != ".py":
        raise TargetError(f"{path} is not a Python file")
    found = targets_in(_module_of(path))
    return {name: target.named(file_address(path, name)) for name, target in found.items()}


def attribute_in(path: Path, name: str) -> Any:
    """Give what a file calls by this name, target or not; None where there is nothing of the name."""
    return getattr(_module_of(path.resolve()), name, None)


def module_name(path: Path) -> str:
    """The name that the module of a file runs under."""
    return _module_of(path.resolve()).__name__


def import_named(name: str) -> ModuleType:
    """Import a module; a TargetError says why it cannot be."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)  # as for `python -m`
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise TargetError(f"module {name!r} cannot be imported: {error}") from None
    except Exception as error:
        path = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
        raise TargetError(f"module {name!r} cannot be imported: {_why(error, path)} (in {path})") from error


def load_module(name: str) -> dict[str, Target]:
    """Give the targets of an importable module by name, under their canonical addresses."""
    module = import_named(name)
    file = getattr(module, "__file__", None)
    path = Path(file).resolve() if file else None
    own = path is not None and not is_installed(path)
    return {
        key: target.named(file_address(path, key) if own and path is not None else f"{name}:{key}")
        for key, target in targets_in(module).items()
    }
