"""The case in flight: written down before it is judged, where the death of its process cannot lose it."""

from __future__ import annotations

import os
import pickle
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gradfuzz.case import Case

# Length of the case that follows, 0 for none, and when it took off on the system's monotonic clock.
_HEADER = struct.Struct("<qd")


class Recorder:
    """Writes each case to a file before it is judged, in some microseconds and without a flush."""

    def __init__(self, path: Path) -> None:
        """Open the file, which the reader made."""
        self._file = os.open(path, os.O_WRONLY)

    def __call__(self, case: Case | None) -> None:
        """Note the case that takes off, or that it has landed."""
        if case is None:
            os.pwrite(self._file, _HEADER.pack(0, 0.0), 0)
            return
        try:
            text = pickle.dumps(case)
        except (pickle.PicklingError, TypeError, AttributeError):
            text = pickle.dumps(None)  # an argument of the user's own kind; that a case flies is known still
        os.pwrite(self._file, text, _HEADER.size)
        os.pwrite(self._file, _HEADER.pack(len(text), time.monotonic()), 0)


class Tower:
    """Reads what a recorder wrote, also after the death of its process."""

    def __init__(self, path: Path) -> None:
        """Make the file."""
        self.path = path
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)

    def seconds(self) -> float:
        """Give how long the case in flight has been so; 0.0 without one."""
        length, since = self._header()
        return time.monotonic() - since if length else 0.0

    def case(self) -> bytes | None:
        """Give the pickled case in flight."""
        length, _ = self._header()
        return os.pread(self._file, length, _HEADER.size) if length else None

    def close(self) -> None:
        """Remove the file."""
        os.close(self._file)
        self.path.unlink(missing_ok=True)

    def _header(self) -> tuple[int, float]:
        data = os.pread(self._file, _HEADER.size, 0)
        length, since = _HEADER.unpack(data) if len(data) == _HEADER.size else (0, 0.0)
        return length, since
