"""The command line, end to end: found, shrunk, saved, replayed, mended."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gradfuzz import cli
from gradfuzz.corpus import load

ROOT = Path(__file__).parent.parent

WRONG = """
import torch
import gradfuzz
from gradfuzz import strategies as gst

@gradfuzz.target(x=gst.tensors("*s", dtype="float64"))
def double(x):
    return x.detach() * x
"""
MENDED = WRONG.replace("x.detach()", "x")
REFUSING = WRONG.replace("return", "raise ValueError('no'); return")


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def gradfuzz(capsys, monkeypatch):
    """Run a command in this process, which keeps the server of its children, and give code, output and errors."""

    def run(*args):
        monkeypatch.setattr(sys, "argv", ["gradfuzz", *args])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ending:
            cli.main()
        return ending.value.code, *capsys.readouterr()

    return run


def fuzz(*extra):
    return ("fuzz", "op.py", "-n", "6", "--seconds", "300", "--seed", "0", "--checks", "wrong-gradient", *extra)


def test_a_defect_is_found_shrunk_saved_replayed_and_mended(project, gradfuzz):
    (project / "op.py").write_text(WRONG)
    code, out, _ = gradfuzz(*fuzz("--report", "json:report.json"))
    assert code == cli.FOUND
    (path,) = Path("corpus").rglob("*.json")
    first, second, third, *_ = out.splitlines()
    assert first == "op.py::double  wrong-gradient (rev, input 0)"
    assert second.startswith("  got ")
    assert third == f"  replay: gradfuzz replay {path}"
    assert load(path).case.inputs[0].size == ()

    (target,) = json.loads(Path("report.json").read_text())["targets"]
    (finding,) = target["findings"]
    assert (target["name"], target["cases"]) == ("op.py::double", 6)
    assert (finding["path"], finding["reliability"]) == (path.as_posix(), "3/3")

    code, out, _ = gradfuzz("replay")
    assert code == cli.FOUND
    assert out.splitlines()[-1] == "1 reproducer: 1 fails"

    (project / "op.py").write_text(MENDED)
    code, out, _ = gradfuzz("replay", str(path))
    assert code == cli.CLEAN
    assert out.startswith(f"passes         {path}")
    assert gradfuzz(*fuzz())[0] == cli.CLEAN


def test_the_same_seed_finds_the_same_and_the_command_says_so(project, gradfuzz):
    (project / "op.py").write_text(WRONG)
    first = gradfuzz("fuzz", "op.py", "-n", "4", "--corpus", "first", "--checks", "wrong-gradient")[1]
    again = first.splitlines()[-1].removeprefix("run again: gradfuzz ")
    assert " --seed " in again
    gradfuzz(*again.replace("first", "second").split())
    first, second = ([path.name for path in Path(folder).rglob("*.json")] for folder in ("first", "second"))
    assert first == second


def test_a_function_that_accepts_nothing_was_not_tested(project, gradfuzz):
    (project / "op.py").write_text(REFUSING)
    code, out, err = gradfuzz(*fuzz())
    assert code == cli.MISUSE
    assert "6 of 6 cases were rejected, most often by ValueError(no); declare what its arguments may be" in err
    assert out.splitlines()[0].startswith("no findings; 6 cases in ")


def test_an_accepted_defect_is_known_until_it_is_reverted(project, gradfuzz):
    (project / "op.py").write_text(WRONG)
    gradfuzz(*fuzz())
    (path,) = map(str, Path("corpus").rglob("*.json"))
    assert gradfuzz("accept", path) == (cli.CLEAN, f"{path}: expected to fail from now on\n", "")
    assert gradfuzz("replay")[:2] == (cli.CLEAN, gradfuzz("replay")[1])
    assert gradfuzz("replay")[1].startswith("known ")
    code, _, err = gradfuzz(*fuzz())
    assert code == cli.CLEAN
    assert "1 known signature seen and not reported" in err
    assert gradfuzz("accept", "--revert", path)[0] == cli.CLEAN
    assert gradfuzz("replay")[0] == cli.FOUND


def test_show_gives_the_call_in_python(project, gradfuzz):
    (project / "op.py").write_text(WRONG)
    gradfuzz(*fuzz())
    (path,) = map(str, Path("corpus").rglob("*.json"))
    code, out, _ = gradfuzz("show", path)
    assert code == cli.CLEAN
    assert "wrong-gradient" in out
    assert "outputs = double(x)" in out
    assert f"replay: gradfuzz replay {path}" in out


def test_list_shows_the_names_that_reports_use(project, gradfuzz):
    (project / "op.py").write_text(WRONG)
    assert gradfuzz("list", "op.py") == (cli.CLEAN, "op.py::double\n", "")


def test_a_baseline_of_signatures_makes_a_run_clean(project, gradfuzz):
    (project / "op.py").write_text(WRONG)
    Path("known.txt").write_text("# since spring\nop.py::double|wrong-gradient|1|rev|input 0|\n")
    assert gradfuzz(*fuzz("--baseline", "known.txt"))[0] == cli.CLEAN


def test_pyproject_gives_defaults_and_the_command_line_wins(project, gradfuzz, monkeypatch):
    (project / "op.py").write_text(WRONG)
    (project / "pyproject.toml").write_text(
        '[tool.gradfuzz]\nmax-examples = 3\nseed = 5\ncorpus = "kept"\nchecks = ["wrong-gradient"]\n'
        'report = ["json:report.json"]\n'
    )
    (project / "below").mkdir()
    monkeypatch.chdir("below")
    code, _, err = gradfuzz("fuzz", "../op.py", "--seed", "6")
    assert code == cli.FOUND
    assert "seed 6" in err
    assert list((project / "kept").rglob("*.json"))
    assert json.loads(Path("report.json").read_text())["targets"][0]["cases"] == 3


def test_prints_of_a_target_stay_off_the_terminal(project, gradfuzz):
    (project / "op.py").write_text(WRONG.replace("return", "print('noise'); return"))
    assert not any("noise" in text for text in gradfuzz(*fuzz())[1:])
    assert not any("noise" in text for text in gradfuzz("replay")[1:])


def test_the_doctor_says_what_there_is(project, gradfuzz):
    code, out, _ = gradfuzz("doctor")
    assert code == cli.CLEAN
    names = [line.split(":")[0] for line in out.splitlines()]
    assert {"ok  torch", "ok  devices", "ok  corpus", "ok  processes"} <= set(names)


def test_help_and_version_import_no_torch():
    program = (
        "import sys; from gradfuzz import cli; sys.argv = ['gradfuzz', *{args}]\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        "assert not {{'torch', 'hypothesis', 'numpy', 'rich'}} & set(sys.modules), sorted(sys.modules)"
    )
    for args in (["--help"], ["--version"], ["fuzz", "--help"], ["replay", "--help"]):
        ran = subprocess.run(
            [sys.executable, "-c", program.format(args=args)], cwd=ROOT, capture_output=True, text=True
        )
        assert ran.returncode == 0, ran.stderr


def test_ctrl_c_prints_what_was_found_and_leaves_it_on_disk(project):
    (project / "op.py").write_text(WRONG)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-u", "-m", "gradfuzz.cli", "fuzz", "op.py", "--seconds", "300", "--seed", "0"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    ) as process:
        line = next((line for line in process.stderr if line.startswith("found:")), None)
        assert line is not None
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: the children get it too
        out, err = process.communicate(timeout=120)
    assert process.returncode == cli.INTERRUPTED
    assert out.splitlines()[0].startswith("op.py::double  ")
    assert re.search("^interrupted: [1-9] finding", out, re.MULTILINE)
    assert "Traceback" not in err
    paths = list(Path("corpus").rglob("*"))
    assert all(load(path).target == "op.py::double" for path in paths if path.is_file())
    assert any(path.suffix == ".json" for path in paths)


def test_a_reader_that_leaves_is_no_error(project):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = f"{sys.executable} -m gradfuzz.cli fuzz --help | true"
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, env=environment)
    assert "Traceback" not in ran.stderr
