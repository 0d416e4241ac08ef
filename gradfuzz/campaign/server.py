"""The server that children are forked from: torch is imported there once, and never differentiates."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import Pipe, forkserver, get_context
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from types import ModuleType

from gradfuzz.campaign.worker import Request, work

# What every child needs; importing it takes seconds, forking from it a hundredth of one.
PRELOAD = [
    "torch",
    "torch.fx.experimental.symbolic_shapes",  # autograd.grad imports it, and sympy, on first use: a second or two
    "torch._decomp.decompositions_for_jvp",  # so does forward-mode AD
    "torch._dynamo",  # and so does forward-mode AD of what torch decomposes in Python, a product with 2 among it
    "hypothesis",
    "gradfuzz.campaign.hunt",
]


def environment() -> dict[str, str]:
    """Give the variables that a process which imports torch and Hypothesis for us should have, where unset."""
    return {
        # Hypothesis' plugin for torch reseeds torch's generator for each case, and costs time.
        "HYPOTHESIS_NO_PLUGINS": "1",
        # Hypothesis caches constants of the user's modules; not in a folder of the user's.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(tempfile.gettempdir(), f"gradfuzz-hypothesis-{os.getuid()}")),
        # A case is too small for threads; they cost more than they save, and make sums vary.
        "OMP_NUM_THREADS": "1",
    }


@contextmanager
def _environment_set() -> Iterator[None]:
    added = {name: value for name, value in environment().items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def start() -> None:
    """Start the server; it imports while the caller goes on. A second call does nothing."""
    get_context("forkserver").set_forkserver_preload(PRELOAD)
    # Inherited by the server: Ctrl-C while it imports must not make it print where it was.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _environment_set():
            forkserver.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def fork(request: Request, *, flight: Path, log: Path) -> tuple[ForkServerProcess, Connection]:
    """Start a child on a request, and give it with our end of its pipe."""
    start()
    ours, theirs = Pipe()
    arguments = (theirs, request, flight, log, Path.cwd())
    process = get_context("forkserver").Process(target=work, args=arguments, daemon=True)
    with _main_hidden():
        process.start()
    theirs.close()
    return process, ours  # pyright: ignore[reportReturnType]  # a pipe end by another name on Windows


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep children from running the caller's script: they need none of it, and it may start a campaign."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
