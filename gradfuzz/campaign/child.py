"""A child process as its parent sees it: what it was asked, what it said last, how it ended."""

from __future__ import annotations

import math
import pickle
import signal
import time
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from gradfuzz.campaign import server
from gradfuzz.campaign.flight import Tower
from gradfuzz.campaign.worker import HuntRequest, Message, Request

# Of a dead process' last words, as much as fits on a line of a report.
LAST_WORDS = 200

# How long a process that has said everything may take to end.
END_SECONDS = 5.0

_numbers = count()


@dataclass
class Child:
    """One child process at work on one request.

    Attributes:
        request: What it was asked.
        process: The process.
        connection: Our end of its pipe.
        tower: Watches its case in flight.
        log: Where its standard error goes.
        forked: When it was started, on the monotonic clock.
        since: When it began its work; a search begins once its target is imported, which may take long.
        answered: Whether it has said all that it was asked for.
        killed: Why we killed it, or empty.
    """

    request: Request
    process: ForkServerProcess
    connection: Connection
    tower: Tower
    log: Path
    forked: float
    since: float
    answered: bool = False
    killed: str = ""

    @classmethod
    def start(cls, request: Request, folder: Path) -> Child:
        """Fork a child for a request; its files lie in the folder."""
        number = next(_numbers)
        log = folder / f"{number}.log"
        tower = Tower(folder / f"{number}.flight")
        process, ours = server.fork(request, flight=tower.path, log=log)
        now = time.monotonic()
        since = math.inf if isinstance(request, HuntRequest) else now
        return cls(request, process, ours, tower, log, now, since)

    def receive(self) -> Message | None:
        """Give the next message, None when there is none any more because the child has ended."""
        try:
            message: Message = self.connection.recv()
        except (EOFError, OSError, pickle.UnpicklingError):  # a message cut short by death is none
            return None
        return message

    def ask_to_stop(self) -> None:
        """Ask the child to end before its next case."""
        try:
            self.connection.send("stop")
        except OSError:
            return  # it has ended already

    def kill(self, why: str) -> None:
        """End the child at once."""
        self.killed = self.killed or why
        self.process.kill()

    def end(self) -> str:
        """Wait until the child is gone, remove what it leaves, and say how it ended."""
        self.process.join(END_SECONDS)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()
        code = self.process.exitcode or 0
        words = self._last_words()
        self.tower.close()
        self.log.unlink(missing_ok=True)
        return f"{_name_of(code)}{f' ({words})' if words else ''}"

    def _last_words(self) -> str:
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return ""
        said = [line.strip() for line in lines if line.strip()]
        return "".join(c if c.isprintable() else " " for c in said[-1][:LAST_WORDS]) if said else ""


def _name_of(code: int) -> str:
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
