"""Messages: what a person reads when something was asked for that cannot be; one line, the value, the remedy."""

from __future__ import annotations

import re
import sys

import pytest

from gradfuzz import cli

OPERATOR = """
import gradfuzz
from gradfuzz import strategies as gst

@gradfuzz.target(x=gst.tensors("*s"))
def sine(x):
    return x.sin()

def undeclared(x):
    return x
"""

MESSAGES = [
    (["fuzz"], "Missing argument 'TARGET...'. (see gradfuzz fuzz --help)"),
    (["fuz"], "No such command 'fuz'.* (see gradfuzz --help)"),
    (["fuzz", "op.py", "--second", "5"], "No such option.* (see gradfuzz fuzz --help)"),
    (["fuzz", "op.py", "--seconds", "0"], "seconds=0 leaves no time; use a number above 0"),
    (["fuzz", "op.py", "--seconds", "nan"], "seconds=nan leaves no time; use a number above 0"),
    (["fuzz", "op.py", "--seconds", "soon"], "Invalid value for '--seconds': 'soon' is not a valid float.*"),
    (["fuzz", "op.py", "-n", "0"], "max_examples=0 leaves nothing to do; use 1 or more"),
    (["fuzz", "op.py", "-w", "0"], "workers=0 leaves nothing to do; use 1 or more"),
    (["fuzz", "op.py", "-w", "many"], "Invalid value for .*: 'many' is no number; use 1 or more, or auto.*"),
    (["fuzz", "op.py", "--max-failures", "0"], "max_failures=0 leaves nothing to do; use 1 or more"),
    (["fuzz", "op.py", "--seed", "-1"], "seed=-1 is negative; use 0 or more"),
    (["fuzz", "op.py", "--order", "4"], "order=4 is not judged; use 1 to 3"),
    (["fuzz", "op.py", "--checks", "wrong"], "check 'wrong' is unknown; known are wrong-gradient, .*, out-of-memory"),
    (
        ["fuzz", "op.py", "--checks", "metadata", "--exclude-checks", "metadata"],
        "checks=['metadata'] without ['metadata'] leaves nothing to look for; name a check",
    ),
    (["fuzz", "op.py", "--dtypes", "float99"], "dtype 'float99' is unknown; known are float64, .*"),
    (["fuzz", "op.py", "--baseline", "no.txt"], "baseline 'no.txt' cannot be read: No such file or directory"),
    (
        ["fuzz", "op.py", "--report", "html:x"],
        "report 'html:x': format 'html' is unknown; known are json, jsonl, junit",
    ),
    (["fuzz", "op.py", "--report", "json"], "report 'json' names no file; write json:PATH"),
    (["fuzz", "none.py"], "none.py: there is no such file"),
    (["fuzz", "op.py::cosine"], "op.py::cosine: there is no 'cosine'; its targets are sine"),
    (["fuzz", "op.py::undeclared"], "op.py::undeclared: undeclared is not declared as a target; write @gradfuzz.*"),
    (["fuzz", "broken.py"], ".*broken.py: line 1: ZeroDivisionError: division by zero"),
    (["fuzz", "dies.py"], "dies.py: importing it ended the process: exit status 9"),
    (["list", "empty.py"], "empty.py: the file declares no target; decorate a function with @gradfuzz.target"),
    (["replay", "nowhere"], "nowhere: no such file or folder"),
    (["show", "nowhere.json"], "nowhere.json: cannot be read: No such file or directory"),
    (["show", "notes.json"], "notes.json: .*"),
    (["accept", "nowhere.json"], "nowhere.json: cannot be read: No such file or directory"),
]


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "op.py").write_text(OPERATOR)
    (tmp_path / "broken.py").write_text("1 / 0")
    (tmp_path / "dies.py").write_text("import os; os._exit(9)")
    (tmp_path / "empty.py").write_text("x = 1")
    (tmp_path / "notes.json").write_text("{")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def error_of(args, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["gradfuzz", *args])
    with pytest.raises(SystemExit) as ending:
        cli.main()
    out, err = capsys.readouterr()
    assert (ending.value.code, out) == (cli.MISUSE, "")
    return err


@pytest.mark.parametrize(("args", "message"), MESSAGES, ids=[" ".join(args) for args, _ in MESSAGES])
def test_misuse_is_one_line_that_names_the_value(args, message, project, monkeypatch, capsys):
    pattern = ".*".join(re.escape(part) for part in message.split(".*"))
    assert re.fullmatch(f"gradfuzz: {pattern}\n", error_of(args, monkeypatch, capsys))
    assert not (project / "corpus").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[tool.gradfuzz]\nsecond = 5", r"pyproject\.toml: tool\.gradfuzz\.second is unknown; known are .*seconds"),
        ("[tool.gradfuzz", r"pyproject\.toml: "),
        ("[tool]\ngradfuzz = 5", r"pyproject\.toml: tool\.gradfuzz must be a table, is 5"),
        ('[tool.gradfuzz]\nseconds = "soon"', r"Invalid value for '--seconds': 'soon' is not a valid float"),
        ("[tool.gradfuzz]\nchecks = 5", r"5 is no list of names"),
    ],
)
def test_a_wrong_pyproject_is_named(text, message, project, monkeypatch, capsys):
    (project / "pyproject.toml").write_text(text)
    error = error_of(["fuzz", "op.py"], monkeypatch, capsys)
    assert re.match("gradfuzz: .*" + message, error)
    assert error.count("\n") == 1


def test_an_error_of_ours_is_one_line_without_a_traceback(project, monkeypatch, capsys):
    def fail(addresses):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("gradfuzz.campaign.supervisor.list_jobs", fail)
    assert error_of(["list", "op.py"], monkeypatch, capsys) == (
        "gradfuzz: an error of gradfuzz itself, RuntimeError: two lines; run again with -v to see where\n"
    )
