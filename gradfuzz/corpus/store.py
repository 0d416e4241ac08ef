"""The corpus on disk: files that are written whole or not at all."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from gradfuzz.corpus.field import one_line
from gradfuzz.corpus.format import content_hash, loads, write, write_case
from gradfuzz.corpus.reproducer import Expect, Reproducer
from gradfuzz.corpus.text import MOST_BYTES, canonical, lay_out
from gradfuzz.errors import CorpusError

# Hex digits of the content's hash in a name; a name already taken by another content gets this many more.
DIGITS = 12
DIGITS_OF_SHA256 = 64
# Longer addresses are cut: file systems allow 255 bytes a name.
LONGEST_FOLDER = 100

_EXPECT = re.compile(r'("expect"\s*:\s*)"(?:pass|fail)"')


def folder_name(target: str) -> str:
    """Give a folder name for a target's address.

    Two addresses may share a folder: the names of files hash the whole address.
    """
    safe = re.sub(r"[^A-Za-z0-9._-]+", "_", target)
    return re.sub(r"^\.+|\.+$", "_", safe[:LONGEST_FOLDER]) or "_"


def place_of(reproducer: Reproducer) -> Path:
    """Give the path below a corpus that a reproducer has by its content."""
    name = f"{reproducer.symptom.value}-{content_hash(reproducer)[:DIGITS]}.json"
    return Path(folder_name(reproducer.target), name)


def size_of(reproducer: Reproducer) -> tuple[int, int, int, str]:
    """Give what reproducers of one signature are ordered by: elements, dimensions, length of text, the text."""
    case = reproducer.case
    views = (*case.inputs, *(view for view in case.grad_outputs or () if view is not None))
    elements = sum(view.numel for view in views) + sum(len(storage.elements) for storage in case.storages)
    text = canonical(write_case(case, sides={}))
    return elements, sum(len(view.size) for view in views), len(text), text


def smallest(reproducers: Iterable[Reproducer]) -> Reproducer:
    """Give the smallest reproducer, whatever their order."""
    return min(reproducers, key=size_of)


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that at any moment it is absent, old or new, but never in between."""
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)  # mkstemp's 0600 would keep a shared corpus from colleagues
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _settle(path.parent)


def _settle(folder: Path) -> None:
    """Make a rename outlive a power cut, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def load(path: Path | str) -> Reproducer:
    """Read one reproducer, exactly as it was saved; a CorpusError of one line says why not."""
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise CorpusError(one_line(f"{path}: not a regular file"))
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        raise CorpusError(one_line(f"{path}: cannot be read: {error.strerror}")) from None
    except UnicodeDecodeError as error:
        raise CorpusError(one_line(f"{path}: not UTF-8: {error.reason} at byte {error.start}")) from None
    return loads(text, source=str(path), folder=path.parent)


def files(path: Path | str) -> Iterator[Path]:
    """Give the corpus files of a folder in order, or the file itself; hidden names are passed over."""
    path = Path(path)
    if not path.exists():
        raise CorpusError(one_line(f"{path}: no such file or folder"))
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(".json") and not name.startswith("."))


def _same_defect(reproducer: Reproducer, folder: Path) -> list[tuple[Path, Reproducer]]:
    found = []
    for path in sorted(folder.glob(f"{reproducer.symptom.value}-*.json")):
        try:
            other = load(path)
        except CorpusError:
            continue  # damaged by hand; replay will say so, and it is not ours to remove
        if other.signature == reproducer.signature:
            found.append((path, other))
    return found


def _free_path(folder: Path, reproducer: Reproducer) -> Path:
    digest = content_hash(reproducer)
    for digits in range(DIGITS, DIGITS_OF_SHA256 + 1):
        path = folder / f"{reproducer.symptom.value}-{digest[:digits]}.json"
        if not path.exists():
            return path
    raise CorpusError(f"{folder}: every name for {digest} is taken; remove the damaged files")


def save(reproducer: Reproducer, root: Path | str, *, stands: Callable[[Reproducer], bool] | None = None) -> Path:
    """Keep a reproducer under `root` and give the path of the smallest one known of its signature.

    A file that stands is never changed: a smaller reproducer is written beside it, with the person's
    `expect` and note of the old one, and only then is the larger one removed.

    Args:
        reproducer: What to keep.
        root: The corpus.
        stands: Whether an older reproducer still shows its defect. One that does not was mended: it stays as it
            is, and what is new of the same signature is kept beside it. By default all do.
    """
    folder = Path(root) / folder_name(reproducer.target)
    folder.mkdir(parents=True, exist_ok=True)
    digest, size = content_hash(reproducer), size_of(reproducer)
    old = []
    for path, other in _same_defect(reproducer, folder):
        if content_hash(other) == digest:
            return path
        if stands is None or stands(other):
            old.append((path, other))
    smaller = [(size_of(other), path) for path, other in old if size_of(other) < size]
    if smaller:
        return min(smaller)[1]
    for _, other in old:
        if other.expect == "fail":
            reproducer = replace(reproducer, expect="fail")
        if other.is_annotated:
            reproducer = replace(reproducer, note=other.note)
    path = _free_path(folder, reproducer)
    sides: dict[str, bytes] = {}
    text = lay_out(write(reproducer, sides=sides))
    for name, data in sides.items():
        write_whole(folder / name, data)
    write_whole(path, text.encode())
    # The order is total, so of several writers at once none removes the smallest.
    for larger, _ in old:
        larger.unlink(missing_ok=True)
    return path


def accept(path: Path | str, *, expect: Expect) -> Reproducer:
    """Set what replay expects of a file, and touch nothing else of it."""
    path = Path(path)
    after = replace(load(path), expect=expect)
    # Edited in place where it can be, so that a file laid out by hand stays as it is.
    text = _EXPECT.sub(rf'\g<1>"{expect}"', path.read_text("utf-8-sig"), count=1)
    if loads(text, source=str(path), folder=path.parent) != after:
        text = lay_out(write(after, sides={}))
    write_whole(path, text.encode())
    return after
