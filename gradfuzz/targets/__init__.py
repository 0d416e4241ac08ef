"""Targets: where they come from, what they are called, and how a case of one is judged."""

from __future__ import annotations

from gradfuzz.targets.address import resolve
from gradfuzz.targets.judge import judge
from gradfuzz.targets.load import load_file, load_module
from gradfuzz.targets.target import Target, target

__all__ = ["Target", "judge", "load_file", "load_module", "resolve", "target"]
