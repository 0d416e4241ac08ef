"""The pytest plugin: corpus files are collected as tests. It imports neither torch nor Hypothesis when it loads."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gradfuzz.corpus import Outcome

# Enough of a file to tell a reproducer from any other JSON without reading that.
HEAD_BYTES = 256
MAGIC = b'"gradfuzz-corpus"'

_CORPUS = "gradfuzz_corpus"
_ALLOW = "gradfuzz_allow_import"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add our options, each with ``--gradfuzz-`` in front."""
    group = parser.getgroup("gradfuzz", "regressions of derivatives found by gradfuzz")
    group.addoption(
        "--gradfuzz-corpus",
        action="append",
        default=[],
        metavar="DIR",
        help="also replay the reproducers in this folder (repeatable)",
    )
    group.addoption(
        "--gradfuzz-allow-import",
        action="append",
        default=[],
        metavar="MODULE",
        help="let reproducers import this module (repeatable)",
    )
    parser.addini(_CORPUS, "folders of reproducers that are replayed", type="paths", default=[])
    parser.addini(_ALLOW, "modules that reproducers may import", type="args", default=[])


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and let a plain `pytest` visit the corpus beside `testpaths`."""
    config.addinivalue_line("markers", "gradfuzz: a reproducer of a wrong derivative, or a test that fuzzes for one")
    given = [
        str(Path(config.invocation_params.dir, folder)) for folder in (config.getoption("--gradfuzz-corpus") or ())
    ]
    config.args.extend(given)
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        config.args.extend(str(folder) for folder in config.getini(_CORPUS) if folder.is_dir())


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a reproducer that lies in a folder of the corpus, or that was named on the command line."""
    if file_path.suffix != ".json" or not _is_wanted(file_path, parent) or not _is_reproducer(file_path):
        return None
    return CorpusFile.from_parent(parent, path=file_path)


def _is_wanted(path: Path, parent: pytest.Collector) -> bool:
    config = parent.config
    folders = [*config.getini(_CORPUS)]
    folders += [Path(config.invocation_params.dir, folder) for folder in (config.getoption("--gradfuzz-corpus") or ())]
    if config.args_source is pytest.Config.ArgsSource.ARGS:
        folders += [Path(config.invocation_params.dir, arg.split("::")[0]) for arg in config.args]
    return any(path.is_relative_to(folder) for folder in folders)


def _is_reproducer(path: Path) -> bool:
    with path.open("rb") as file:
        return MAGIC in file.read(HEAD_BYTES)


class CorpusFile(pytest.File):
    """One corpus file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Give its one item, named by the file."""
        item: CorpusItem = CorpusItem.from_parent(self, name=self.path.stem)
        yield item


class StillWrongError(Exception):
    """A reproducer does not do what is expected of it."""


class CorpusItem(pytest.Item):
    """One reproducer, judged again."""

    def __init__(self, **kwargs: object) -> None:
        """Mark the item, so that ``-m gradfuzz`` selects it."""
        super().__init__(**kwargs)  # type: ignore[arg-type]  # pytest hands on what from_parent was given
        self.add_marker("gradfuzz")

    def runtest(self) -> None:
        """Fail where the reproducer fails or cannot be judged; a known defect is an expected failure."""
        from gradfuzz.corpus import replay

        allowed = [*self.config.getini(_ALLOW), *(self.config.getoption("--gradfuzz-allow-import") or ())]
        for outcome in replay([self.path], allow_import=allowed):
            if outcome.status == "known":
                pytest.xfail(outcome.detail)
            if outcome.status != "passes":
                raise StillWrongError(self._text(outcome))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        """Say what is wrong in some lines, without a traceback through us."""
        if isinstance(excinfo.value, StillWrongError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Name the item by its file."""
        return self.path, None, self.nodeid

    def _text(self, outcome: Outcome) -> str:
        lines = [f"{outcome.status}: {outcome.detail}"]
        if outcome.reproducer is not None:
            lines.insert(0, outcome.reproducer.target)
        if outcome.status == "fixed":
            lines.append(f"no longer known to fail: gradfuzz accept --revert {self._shown()}")
        lines.append(f"replay: gradfuzz replay {self._shown()}")
        return "\n".join(lines)

    def _shown(self) -> str:
        folder = self.config.invocation_params.dir
        path = self.path.relative_to(folder) if self.path.is_relative_to(folder) else self.path
        return shlex.quote(path.as_posix())
