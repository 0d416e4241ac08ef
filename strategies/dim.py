"""The notation for dimensions: ``"*b n"``, ``"#n"``, ``"n+1"``, ``"..."``, numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from gradfuzz.errors import StrategyError

_TERM = r"(?:\d+\*[A-Za-z_]\w*|[A-Za-z_]\w*\*\d+|[A-Za-z_]\w*|\d+)"
_SUM = re.compile(rf"{_TERM}(?:[+-]{_TERM})*")
_PART = re.compile(rf"([+-]?)({_TERM})")

# The name of a dimension that is shared with nobody, as in jaxtyping.
ANONYMOUS = "_"


@dataclass(frozen=True, slots=True)
class Dim:
    """One word of the notation.

    Attributes:
        terms: Factor and name of each named part; ``2*n+m`` has two.
        constant: What is added to them; a plain number has no terms.
        broadcast: Whether the side may be 1 instead (``#``).
        variadic: Whether it stands for any number of dimensions (``*``, ``...``).
    """

    terms: tuple[tuple[int, str], ...] = ()
    constant: int = 0
    broadcast: bool = False
    variadic: bool = False

    @property
    def name(self) -> str:
        """The first name, by which groups are shared."""
        return self.terms[0][1] if self.terms else ANONYMOUS


def _bad(text: str, word: str, remedy: str) -> StrategyError:
    return StrategyError(f"dims {text!r}: {word!r} is no dimension; {remedy}")


def _dim(text: str, word: str) -> Dim:
    body = word.lstrip("#*")
    marks = word[: len(word) - len(body)]
    if len(set(marks)) < len(marks):
        raise _bad(text, word, "write each of # and * once")
    broadcast, variadic = "#" in marks, "*" in marks
    if body == "...":
        return Dim(terms=((1, ANONYMOUS),), broadcast=broadcast, variadic=True)
    if not _SUM.fullmatch(body):
        raise _bad(text, word, "write a name, a number, a sum such as n+1, or *b, #n, ...")
    terms: list[tuple[int, str]] = []
    constant = 0
    for sign, term in _PART.findall(body):
        factors = term.split("*")
        number = 1
        for factor in factors:
            number *= int(factor) if factor.isdigit() else 1
        number = -number if sign == "-" else number
        names = [factor for factor in factors if not factor.isdigit()]
        if names:
            terms.append((number, names[0]))
        else:
            constant += number
    if variadic and (len(terms) != 1 or terms[0][0] != 1 or constant):
        raise _bad(text, word, "* goes before a single name")
    if constant < 0 and not any(factor > 0 for factor, _ in terms):
        raise _bad(text, word, "it is always negative")
    return Dim(tuple(terms), constant, broadcast, variadic)


@cache
def parse(text: str) -> tuple[Dim, ...]:
    """Read the notation; ``""`` is a scalar."""
    if not isinstance(text, str):
        raise StrategyError(f"dims={text!r} is no text; write names and numbers, such as '*b n'")
    dims = tuple(_dim(text, word) for word in text.split())
    if sum(dim.variadic for dim in dims) > 1:
        raise StrategyError(f"dims {text!r} has more than one variadic part; keep one of them")
    return dims
