"""The corpus: reproducers as text files that replay for ever."""

from gradfuzz.corpus.description import describe
from gradfuzz.corpus.format import content_hash, dumps, loads
from gradfuzz.corpus.outcome import Outcome, Replayed, exit_code, replay
from gradfuzz.corpus.reproducer import Expect, Found, Observed, Reproducer
from gradfuzz.corpus.store import accept, files, load, save, smallest

__all__ = [
    "Expect",
    "Found",
    "Observed",
    "Outcome",
    "Replayed",
    "Reproducer",
    "accept",
    "content_hash",
    "describe",
    "dumps",
    "exit_code",
    "files",
    "load",
    "loads",
    "replay",
    "save",
    "smallest",
]
