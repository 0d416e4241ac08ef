"""The configuration of a project: ``[tool.gradfuzz]`` in its pyproject.toml."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from gradfuzz.errors import CampaignError

NAME = "pyproject.toml"

# Keys whose values are paths; they are meant from the file's own folder, wherever a command is run.
_PATHS = ("corpus", "baseline")


def read_config(folder: Path, known: Collection[str]) -> dict[str, object]:
    """Give the settings of the nearest pyproject.toml at or above a folder, by the names of options.

    Raises:
        CampaignError: The file is no TOML, or has a key that is not known.
    """
    for parent in (folder, *folder.parents):
        if (parent / NAME).is_file():
            return _read(parent / NAME, known)
    return {}


def _read(path: Path, known: Collection[str]) -> dict[str, object]:
    import tomllib

    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CampaignError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # TOMLDecodeError and UnicodeDecodeError are
        raise CampaignError(f"{path}: {error}") from None
    tool = document.get("tool", {})
    table = tool.get("gradfuzz", {}) if isinstance(tool, dict) else {}
    if not isinstance(table, dict):
        raise CampaignError(f"{path}: tool.gradfuzz must be a table, is {table!r}")
    settings: dict[str, object] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            keys = ", ".join(sorted(option.replace("_", "-") for option in known))
            raise CampaignError(f"{path}: tool.gradfuzz.{key} is unknown; known are {keys}")
        if name in _PATHS and isinstance(value, str):
            value = os.path.relpath(path.parent / value)
        settings[name] = value
    return settings
