"""Versions of what a result depends on, without importing any of it."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def version_of(package: str) -> str:
    """Give the version of an installed package, or ``"none"``."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"


def torch_version() -> str:
    """Give torch's version."""
    return version_of("torch")
