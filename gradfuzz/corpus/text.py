"""JSON text: read with suspicion, laid out for people."""

from __future__ import annotations

import json
import re

from gradfuzz.corpus.field import Bare, Field, one_line
from gradfuzz.errors import CorpusError

# A reproducer has kilobytes; storages that would make it larger go to side files.
MOST_BYTES = 8 * 2**20
# The format itself is 6 deep; the rest is room for lists in argument values.
MOST_NESTING = 32
# Columns of a line of our layout; a longer container is broken.
COLUMNS = 110
INDENT = "  "

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]|\\.)*"|[\[\]{}]')


class Rows(list[object]):
    """A list that is laid out with this many items a line."""

    def __init__(self, items: list[object], width: int) -> None:
        """Take the items as they are."""
        super().__init__(items)
        self.width = width

    def lines(self) -> list[str]:
        """Give the items of each line."""
        return [", ".join(map(_plain, self[i : i + self.width])) for i in range(0, len(self), self.width)]


def _plain(value: object) -> str:
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate has no bytes; its escape has
        text = json.dumps(value, allow_nan=False)
    return text


def canonical(value: object) -> str:
    """Give the one text of a JSON value: sorted keys, no whitespace, ASCII."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _is_broken(value: object) -> bool:
    """Whether a value takes several lines however short: rows of numbers, and lists of records."""
    if isinstance(value, Rows):
        return len(value) > value.width
    if isinstance(value, dict):
        return any(_is_broken(item) for item in value.values())
    return isinstance(value, list) and any(
        (isinstance(item, dict) and len(item) > 1) or _is_broken(item) for item in value
    )


def _laid_out(value: object, indent: str, room: int) -> str:
    if not _is_broken(value) and (len(line := _plain(value)) <= room or not isinstance(value, dict | list)):
        return line
    inner = indent + INDENT
    if isinstance(value, Rows):
        lines, ends = value.lines(), "[]"
    elif isinstance(value, dict):
        heads = [f"{_plain(key)}: " for key in value]
        lines = [
            head + _laid_out(item, inner, COLUMNS - len(inner) - len(head))
            for head, item in zip(heads, value.values(), strict=True)
        ]
        ends = "{}"
    else:
        assert isinstance(value, list)
        lines, ends = [_laid_out(item, inner, COLUMNS - len(inner)) for item in value], "[]"
    body = ",\n".join(inner + line for line in lines)
    return f"{ends[0]}\n{body}\n{indent}{ends[1]}"


def lay_out(record: dict[str, object]) -> str:
    """Give a record as JSON text: a key a line, a record of a list a line, a row of numbers a line."""
    lines = [f"{INDENT}{_plain(key)}: {_laid_out(value, INDENT, COLUMNS)}" for key, value in record.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    keys = [key for key, _ in pairs]
    if len(set(keys)) != len(keys):
        twice = next(key for i, key in enumerate(keys) if key in keys[:i])
        raise ValueError(f"key {json.dumps(twice)} stands twice in one object")
    return dict(pairs)


def _whole(digits: str) -> int | float:
    # "-0" is a float to every reader that has only floats; as an int its sign would be lost.
    return -0.0 if digits == "-0" else int(digits)


def parse(text: str, source: str) -> Field:
    """Read JSON text; a CorpusError starts with `source` and says what is wrong on one line."""

    def refused(problem: object) -> CorpusError:
        return CorpusError(one_line(f"{source}: {problem}"))

    depth = 0
    for token in _STRING_OR_BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(token.group(), 0)
        if depth > MOST_NESTING:
            raise refused(f"nested more than {MOST_NESTING} deep")
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=Bare, parse_int=_whole)
    except json.JSONDecodeError as error:
        raise refused(f"not JSON: {error}") from None
    except ValueError as error:
        raise refused(error) from None
    return Field(source, "", value)
