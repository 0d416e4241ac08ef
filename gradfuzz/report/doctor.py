"""The doctor: what gradfuzz runs on, and whether it can work here."""

from __future__ import annotations

import os
import platform
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gradfuzz import __version__
from gradfuzz.errors import GradfuzzError
from gradfuzz.report.version import version_of

# What a result depends on; all are required, so that one which is missing is a broken installation.
PACKAGES = ("torch", "hypothesis", "hypothesis-torch", "numpy", "click", "rich")


@dataclass(frozen=True, slots=True)
class Item:
    """One thing looked at."""

    name: str
    text: str
    healthy: bool = True


def examine(corpus: Path) -> Iterator[Item]:
    """Give what there is to know of this installation and this folder."""
    yield Item("gradfuzz", __version__)
    yield Item("python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    for package in PACKAGES:
        version = version_of(package)
        yield Item(package, version, healthy=version != "none")
    yield _devices()
    yield _corpus(corpus)
    yield _processes()


def _devices() -> Item:
    import torch

    found = ["cpu"]
    found += [f"cuda:{i} ({torch.cuda.get_device_name(i)})" for i in range(torch.cuda.device_count())]
    if torch.backends.mps.is_available():
        found.append("mps")
    return Item("devices", ", ".join(found))


def _corpus(corpus: Path) -> Item:
    existing = next(folder for folder in (corpus.absolute(), *corpus.absolute().parents) if folder.exists())
    if not existing.is_dir():
        return Item("corpus", f"{corpus}: {existing} is no folder; name another with --corpus", healthy=False)
    try:
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        reason = error.strerror or str(error)
        return Item("corpus", f"{corpus} cannot be written: {reason}; name another with --corpus", healthy=False)
    number = sum(1 for _ in corpus.rglob("*.json")) if corpus.is_dir() else 0
    return Item("corpus", f"{corpus} is writable and holds {number} files")


def _processes() -> Item:
    from gradfuzz.campaign.supervisor import greet

    try:
        greet()
    except (OSError, GradfuzzError) as error:
        return Item("processes", f"a child process cannot be used: {error}", healthy=False)
    return Item("processes", f"children start and answer; {os.cpu_count()} processors")
