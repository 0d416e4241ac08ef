"""The pytest plugin: corpus files as tests."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gradfuzz.case import Argument, Case, Plan, StorageSpec, TensorSpec
from gradfuzz.checker.verdict import Finding, Symptom
from gradfuzz.corpus import Reproducer, accept, save

pytest_plugins = ["pytester"]

ROOT = Path(__file__).parent.parent

WRONG = """
import gradfuzz
from gradfuzz import strategies as gst

@gradfuzz.target(x=gst.tensors("*s"))
def double(x):
    return x.detach() * x
"""


@pytest.fixture
def project(pytester):
    """A project with a wrong function and the reproducer of its defect."""
    pytester.makeini("[pytest]\ngradfuzz_corpus = corpus\n")
    (pytester.path / "op.py").write_text(WRONG)
    case = Case(
        target="op.py::double",
        storages=(StorageSpec("float64", (1.5,)),),
        inputs=(TensorSpec(0, (), (), requires_grad=True),),
        arguments=(Argument("x", input=0),),
        plan=Plan(oracles=("wrong-gradient",)),
    )
    seen = Finding(Symptom.WRONG_GRADIENT, "input 0", "1.5", "3 +- 1e-11", 1, "rev", "()")
    pytester.reproducer = save(Reproducer.of(seen, case), pytester.path / "corpus").relative_to(pytester.path)
    return pytester


def run(project, *args):
    return project.runpytest_inprocess("-p", "gradfuzz.pytest_plugin", "-p", "no:cacheprovider", *args)


def test_loading_the_plugin_imports_neither_torch_nor_hypothesis():
    program = (
        "import sys, gradfuzz.pytest_plugin\n"
        "found = {'torch', 'hypothesis', 'numpy', 'gradfuzz.checker'} & set(sys.modules)\n"
        "assert not found, found"
    )
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_a_reproducer_that_fails_is_a_failing_test_that_explains_itself(project):
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "op.py::double",
            "fails: wrong-gradient: first derivative (rev), input 0, element (): got 1.5, want 3*",
            f"replay: gradfuzz replay {project.reproducer}",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*pytest_plugin.py:*")


def test_a_mended_function_makes_it_pass(project):
    (project.path / "op.py").write_text(WRONG.replace("x.detach()", "x"))
    run(project).assert_outcomes(passed=1)


def test_an_accepted_defect_is_an_expected_failure(project):
    accept(project.path / project.reproducer, expect="fail")
    run(project).assert_outcomes(xfailed=1)


def test_an_accepted_defect_that_is_fixed_fails_and_says_what_to_do(project):
    accept(project.path / project.reproducer, expect="fail")
    (project.path / "op.py").write_text(WRONG.replace("x.detach()", "x"))
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*gradfuzz accept --revert {project.reproducer}"])


def test_a_damaged_reproducer_fails_with_one_line(project):
    path = project.path / project.reproducer
    path.write_text(path.read_text().replace('"float64"', '"float99"'))
    result = run(project)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(['unloadable: *"float99"*'])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_json_that_is_no_reproducer_is_left_alone(project):
    (project.path / "corpus" / "notes.json").write_text(json.dumps({"format": "shopping list"}))
    run(project).assert_outcomes(failed=1)


def test_without_configuration_a_corpus_is_collected_only_when_it_is_named(project):
    project.makeini("[pytest]\n")
    run(project).assert_outcomes()
    run(project, "corpus").assert_outcomes(failed=1)
    run(project, str(project.reproducer)).assert_outcomes(failed=1)
    run(project, "--gradfuzz-corpus", "corpus").assert_outcomes(failed=1)


def test_a_plain_run_visits_the_corpus_beside_the_test_paths(project):
    project.makeini("[pytest]\ngradfuzz_corpus = corpus\ntestpaths = tests\n")
    (project.path / "tests").mkdir()
    (project.path / "tests" / "test_one.py").write_text("def test_one(): pass\n")
    run(project).assert_outcomes(passed=1, failed=1)
    run(project, "tests").assert_outcomes(passed=1)


def test_the_marker_selects_reproducers(project):
    (project.path / "test_one.py").write_text("def test_one(): pass\n")
    run(project, "-m", "gradfuzz").assert_outcomes(failed=1, deselected=1)
    run(project, "-m", "not gradfuzz").assert_outcomes(passed=1, deselected=1)
    run(project, "--strict-markers").assert_outcomes(passed=1, failed=1)
