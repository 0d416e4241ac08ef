"""One value of a JSON document, which knows where it stands and what is allowed there."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass

from gradfuzz.errors import CorpusError

# As much of a wrong value as a line can show.
SHOWN = 60


class Bare(str):
    """A bare NaN or Infinity in a JSON text, kept until its place is known and then refused."""

    __slots__ = ()


def shown(value: object) -> str:
    """Give a value as JSON on one line, cut where it is long."""
    if isinstance(value, Bare):
        return str(value)
    text = json.dumps(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def one_line(text: str) -> str:
    """Escape what would break a line or steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def _listed(names: Collection[object]) -> str:
    return ", ".join(shown(name) for name in names)


@dataclass(frozen=True, slots=True)
class Field:
    """A value with the file it comes from and its path inside, such as ``case.inputs[0].stride``."""

    source: str
    path: str
    value: object

    def wrong(self, problem: str) -> CorpusError:
        """Make the error that says where, what stands there, and what is allowed."""
        where = f"{self.path}: {shown(self.value)}" if self.path else shown(self.value)
        return CorpusError(one_line(f"{self.source}: {where}: {problem}"))

    def record(self, required: Collection[str] = (), optional: Collection[str] = ()) -> dict[str, Field]:
        """Give the fields of an object that has all of the required keys and none but the optional ones."""
        if not isinstance(self.value, dict):
            raise self.wrong("must be an object")
        known = [*required, *optional]
        for key in self.value:
            if key not in known:
                raise self.wrong(f"key {shown(key)} is unknown; known are {_listed(known)}")
        for key in required:
            if key not in self.value:
                raise self.wrong(f"key {shown(key)} is missing")
        prefix = f"{self.path}." if self.path else ""
        return {key: Field(self.source, f"{prefix}{key}", value) for key, value in self.value.items()}

    def items(self, *, most: int) -> Iterator[Field]:
        """Give the fields of a list of at most this many items."""
        return (Field(self.source, f"{self.path}[{i}]", value) for i, value in enumerate(self.values(most=most)))

    def values(self, *, most: int) -> list[object]:
        """Give the bare values of a list of at most this many items."""
        if not isinstance(self.value, list):
            raise self.wrong("must be a list")
        if len(self.value) > most:
            raise self.wrong(f"has {len(self.value)} items; at most {most} are allowed")
        return self.value

    def integer(self, low: int, high: int) -> int:
        """Give a whole number in a closed range; true and false are none."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.wrong("must be a whole number")
        if not low <= self.value <= high:
            raise self.wrong(f"must be from {low} to {high}")
        return self.value

    def boolean(self) -> bool:
        """Give true or false."""
        if not isinstance(self.value, bool):
            raise self.wrong("must be true or false")
        return self.value

    def text(self) -> str:
        """Give a string."""
        if not isinstance(self.value, str) or isinstance(self.value, Bare):
            raise self.wrong("must be a string")
        return self.value

    def name(self, names: Collection[str]) -> str:
        """Give a string that is one of a table."""
        text = self.text()
        if text not in names:
            raise self.wrong(f"is unknown; known are {_listed(names)}")
        return text
