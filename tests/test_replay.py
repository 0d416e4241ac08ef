"""Replay: what has become of a defect, and whose code a corpus file may run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import gradfuzz
from gradfuzz.case import Argument, Case, Plan, StorageSpec, TensorSpec, contiguous_stride
from gradfuzz.checker.verdict import Finding, Status, Symptom, Verdict
from gradfuzz.corpus import Reproducer, accept, dumps, exit_code, outcome, replay, save
from gradfuzz.corpus.torch_table import NAMESPACES, functions_of
from gradfuzz.errors import CorpusError

FAULTY = """\
import torch


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return FACTOR * x * grad_output


def square(x):
    return Square.apply(x)
"""
WRONG, RIGHT = FAULTY.replace("FACTOR", "3"), FAULTY.replace("FACTOR", "2")
TARGET = "ops.py::square"


def case_of(*elements, target=TARGET, name="x", **fields):
    view = TensorSpec(0, (len(elements),), contiguous_stride((len(elements),)), requires_grad=True)
    argument = Argument(name, fields.pop("kind", "positional"), 0)
    return Case(target, (StorageSpec("float64", elements),), (view,), (argument,), plan=Plan(order=1), **fields)


def reproducer_of(target=TARGET, elements=(1.0,), **fields):
    finding = Finding(Symptom.WRONG_GRADIENT, "input 0", "3", "2", order=1, mode="rev")
    return Reproducer.of(finding, case_of(*elements, target=target, **fields))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with a faulty operator, which is worked in."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "ops.py").write_text(WRONG)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def keep(project, target=TARGET, **fields):
    return save(reproducer_of(target, **fields), project / "corpus")


def only(outcomes):
    (outcome,) = outcomes
    return outcome


# --- what has become of a defect ------------------------------------------------------------------


def test_a_defect_that_is_still_there_fails(project):
    path = keep(project)
    found = only(gradfuzz.replay("corpus"))
    assert (found.path, found.status) == (path.relative_to(project), "fails")
    assert found.detail.startswith("wrong-gradient: first derivative (rev), input 0, element (0,): got 3")
    assert found.reproducer.signature in {f.signature(TARGET) for f in found.verdict.findings}
    assert exit_code([found]) == 1


def test_a_defect_that_was_mended_passes_with_nothing_else_touched(project):
    path = keep(project)
    before = path.read_bytes()
    assert only(replay("corpus")).status == "fails"
    (project / "ops.py").write_text(RIGHT)
    mended = only(replay("corpus"))
    assert (mended.status, mended.detail) == ("passes", "")
    assert exit_code([mended]) == 0
    assert path.read_bytes() == before


def test_a_mended_operator_of_a_package_passes_too(project):
    (project / "mylib").mkdir()
    (project / "mylib" / "__init__.py").touch()
    (project / "mylib" / "factor.py").write_text("FACTOR = 3\n")
    (project / "mylib" / "ops.py").write_text("from .factor import FACTOR\n" + FAULTY)
    keep(project, "mylib/ops.py::square")
    keep(project, "mylib.ops:square")
    assert [found.status for found in replay("corpus")] == ["fails", "fails"]
    (project / "mylib" / "ops.py").write_text(RIGHT)
    assert [found.status for found in replay("corpus")] == ["passes", "passes"]


def test_a_defect_that_is_expected_and_there_is_known(project):
    accept(keep(project), expect="fail")
    found = only(replay("corpus"))
    assert found.status == "known"
    assert exit_code([found]) == 0


def test_a_defect_that_is_expected_and_gone_is_fixed(project):
    accept(keep(project), expect="fail")
    (project / "ops.py").write_text(RIGHT)
    found = only(replay("corpus"))
    assert found.status == "fixed"
    assert exit_code([found]) == 1


def test_another_defect_in_the_same_case_is_a_change(project):
    keep(project)
    (project / "ops.py").write_text(WRONG.replace("return 3 * x * grad_output", "raise ArithmeticError('no')"))
    found = only(replay("corpus"))
    assert found.status == "changed"
    assert found.detail.startswith(f"saved for {TARGET}|wrong-gradient|1|rev|input 0|; now backward-error")
    assert exit_code([found]) == 1


def verdicts(monkeypatch, *given):
    """Let the judge say these, one after the other."""
    answers = iter(given)
    monkeypatch.setattr(outcome, "judge", lambda target, case: next(answers))


FAIL = Verdict(Status.FAIL, (Finding(Symptom.WRONG_GRADIENT, "input 0", "3", "2", order=1, mode="rev"),))
PASS = Verdict(Status.PASS)


def test_a_defect_that_comes_and_goes_is_flaky(project, monkeypatch):
    keep(project)
    verdicts(monkeypatch, FAIL, PASS, FAIL)
    found = only(replay("corpus"))
    assert found.status == "flaky"
    assert found.detail == "fails 2 of 3 times: wrong-gradient: first derivative (rev), input 0: got 3, want 2"
    assert exit_code([found]) == 1


@pytest.mark.parametrize(
    ("verdict", "detail"),
    [
        (Verdict(Status.REJECTED, reason="ValueError: x must be positive"), "rejected: ValueError: x must be positive"),
        (Verdict(Status.INCONCLUSIVE, reason="a kink\nat the point"), "inconclusive: a kink\\nat the point"),
    ],
)
def test_a_pass_without_a_check_says_so_on_one_line(project, monkeypatch, verdict, detail):
    keep(project)
    verdicts(monkeypatch, verdict)
    found = only(replay("corpus"))
    assert (found.status, found.detail) == ("passes", detail)


def test_a_damaged_file_is_unloadable_and_the_others_are_replayed(project):
    path = keep(project)
    (path.parent / "a.json").write_text(path.read_text()[:200])
    damaged, whole = replay("corpus")
    assert (damaged.status, whole.status) == ("unloadable", "fails")
    assert damaged.detail.startswith("not JSON: ")
    assert damaged.reproducer is None
    assert exit_code([damaged, whole]) == 2


def test_a_case_for_a_device_that_is_not_here_is_unloadable(project):
    path = keep(project)
    path.write_text(path.read_text().replace('"device": "cpu"', '"device": "cuda:99"'))
    found = only(replay("corpus"))
    assert found.status == "unloadable"
    assert found.detail.startswith("cannot be built here: ")
    assert "\n" not in found.detail


def test_a_target_that_is_gone_is_missing(project):
    keep(project)
    (project / "ops.py").unlink()
    found = only(replay("corpus"))
    assert (found.status, found.verdict) == ("missing-target", None)
    assert found.detail == f"target 'ops.py::square': there is no ops.py in {project}"
    assert exit_code([found]) == 2


def test_a_function_that_is_gone_is_missing(project):
    keep(project)
    (project / "ops.py").write_text("import torch\n")
    found = only(replay("corpus"))
    assert found.status == "missing-target"
    assert "there is no function 'square'" in found.detail


def test_a_file_that_raises_is_missing_with_the_line(project):
    keep(project)
    (project / "ops.py").write_text("import torch\n1 / 0\n")
    found = only(replay("corpus"))
    assert found.status == "missing-target"
    assert "line 2: ZeroDivisionError: division by zero" in found.detail


def test_a_renamed_argument_is_not_taken_for_a_refused_input(project):
    keep(project, kind="keyword")
    (project / "ops.py").write_text(WRONG.replace("square(x)", "square(z)").replace("apply(x)", "apply(z)"))
    found = only(replay("corpus"))
    assert found.status == "missing-target"
    assert "does not take the arguments of the case: missing a required argument: 'z'" in found.detail


def test_a_judge_that_breaks_ends_no_replay(project, monkeypatch):
    keep(project)

    def breaks(target, case):
        raise KeyError("internal\nerror")

    monkeypatch.setattr(outcome, "judge", breaks)
    found = only(replay("corpus"))
    assert found.status == "missing-target"
    assert "\n" not in found.detail


def test_no_file_is_clean_and_no_folder_is_a_misuse(project):
    (project / "corpus").mkdir()
    assert exit_code(replay("corpus")) == 0
    with pytest.raises(CorpusError, match="nowhere: no such file or folder"):
        list(replay("nowhere"))


def test_a_declared_target_is_replayed_as_it_is_declared(project):
    declaration = "import gradfuzz\nfrom gradfuzz import strategies as gst\n"
    decorator = '@gradfuzz.target(x=gst.tensors("n"), checks=["backward-error"])\ndef square'
    (project / "ops.py").write_text(declaration + WRONG.replace("def square", decorator))
    keep(project)
    assert only(replay("corpus")).status == "passes"  # a wrong gradient is not among its checks
    (project / "ops.py").write_text(
        declaration + WRONG.replace("def square", decorator.replace("backward-error", "wrong-gradient"))
    )
    assert only(replay("corpus")).status == "fails"


def test_replay_leaves_the_random_generator_as_it_was(project):
    keep(project)
    before = torch.get_rng_state()
    list(replay("corpus"))
    assert torch.equal(torch.get_rng_state(), before)


def test_many_files_load_their_target_once(project):
    (project / "ops.py").write_text("print('loaded')\n" + RIGHT)
    for i in range(20):
        elements = (1.0, *[2.0] * i)
        finding = reproducer_of(elements=elements)
        path = project / "corpus" / f"{i}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(dumps(finding))
    code = "from gradfuzz import replay; print([o.status for o in replay()].count('passes'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment())
    assert done.stdout.split() == ["loaded", "20"]


def environment():
    root = str(Path(gradfuzz.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": root, "OMP_NUM_THREADS": "1"}


# --- a target given from Python -------------------------------------------------------------------


def test_a_function_without_an_address_is_replayed_from_python(project):
    def closure(x):
        return x * x

    path = keep(project, "notebook:<locals>.closure")
    assert only(replay(path)).status == "missing-target"
    assert only(replay(path, target=closure)).status == "passes"
    wrong = {}
    exec(WRONG, wrong)
    assert only(replay(path, target=wrong["square"])).status == "fails"


def test_of_a_folder_only_the_files_of_the_given_target_are_replayed(project):
    keep(project)
    path = keep(project, "other.py::square")
    given = gradfuzz.Target(lambda x: x * x, {}, "other.py::square")
    found = only(replay("corpus", target=given))
    assert (found.path, found.status) == (path.relative_to(project), "passes")


# --- whose code may run ---------------------------------------------------------------------------

MARKED = "from pathlib import Path\nPath({mark!r}).touch()\ndef square(x): return x * x\n"


@pytest.fixture
def mark(tmp_path_factory):
    """A file that appears when code runs that must not."""
    return tmp_path_factory.mktemp("mark") / "ran"


def write(path, mark):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MARKED.format(mark=str(mark)))


def refusal(project, target):
    """What replay says of a file with this target."""
    path = keep(project)
    changed = path.read_text().replace(TARGET, target.replace("\\", "\\\\"))
    path.write_text(changed)
    found = only(replay("corpus"))
    assert found.status == "missing-target"
    assert "\n" not in found.detail
    assert exit_code([found]) == 2
    return found.detail


def test_the_mark_appears_when_a_target_is_allowed_to_run(project, mark):
    write(project / "sub" / "good.py", mark)
    keep(project, "sub/good.py::square")
    assert only(replay("corpus")).status == "passes"
    assert mark.exists()


@pytest.mark.parametrize("target", ["../outside/bad.py::square", "sub/../../outside/bad.py::square"])
def test_a_target_above_the_project_is_not_run(project, mark, target):
    write(project.parent / "outside" / "bad.py", mark)
    (project / "sub").mkdir()
    assert "must not contain '..'" in refusal(project, target)
    assert not mark.exists()


def test_an_absolute_target_is_not_run(project, mark):
    write(project / "bad.py", mark)
    assert "must be relative to the project" in refusal(project, f"{project}/bad.py::square")
    assert not mark.exists()


@pytest.mark.parametrize("target", ["C:\\ops\\bad.py::square", "sub\\bad.py::square", "C:/bad.py::square"])
def test_a_target_with_another_systems_separators_is_refused(project, target):
    assert "must be relative to the project" in refusal(project, target)


@pytest.mark.parametrize("target", ["linked/bad.py::square", "linked.bad:square", "linked.py::square"])
def test_a_target_behind_a_link_that_leads_out_is_not_run(project, tmp_path_factory, mark, target):
    outside = tmp_path_factory.mktemp("outside")
    write(outside / "bad.py", mark)
    write(outside / "__init__.py", mark)
    (project / "linked").symlink_to(outside)
    (project / "linked.py").symlink_to(outside / "bad.py")
    assert "leads out of the project" in refusal(project, target)
    assert not mark.exists()


def test_a_link_inside_the_project_is_followed(project, mark):
    write(project / "sub" / "good.py", mark)
    (project / "good.py").symlink_to(project / "sub" / "good.py")
    keep(project, "good.py::square")
    assert only(replay("corpus")).status == "passes"


def test_a_loop_of_links_is_refused(project):
    (project / "loop").symlink_to(project / "loop")
    assert "cannot be followed" in refusal(project, "loop/ops.py::square")


@pytest.mark.parametrize(
    "target",
    [
        "env/lib/site-packages/bad.py::square",
        "env/lib/dist-packages/bad.py::square",
        "lib/site-packages/bad.py::square",
        "venv/src/bad.py::square",
        "venv.src.bad:square",
    ],
)
def test_a_target_among_installed_packages_is_not_run(project, mark, target):
    file = target.partition("::")[0] if "::" in target else "venv/src/bad.py"
    write(project / file, mark)
    (project / "venv").mkdir(exist_ok=True)
    (project / "venv" / "pyvenv.cfg").touch()
    assert "is an installed package; --allow-import" in refusal(project, target)
    assert not mark.exists()


def test_an_installed_module_runs_when_it_is_allowed(project, mark, monkeypatch):
    write(project / "lib" / "site-packages" / "installed_ops.py", mark)
    monkeypatch.syspath_prepend(project / "lib" / "site-packages")
    assert "--allow-import installed_ops allows an installed one" in refusal(project, "installed_ops:square")
    assert not mark.exists()
    assert only(replay("corpus", allow_import=["installed_ops"])).status == "passes"
    assert mark.exists()


def test_a_parent_package_is_not_imported_to_find_a_target(project, mark):
    write(project / "pkg" / "__init__.py", mark)
    assert "there is no pkg.missing in" in refusal(project, "pkg.missing:square")
    assert not mark.exists()


@pytest.mark.parametrize(
    "target",
    [
        "ops.py::system",
        "ops.py::os.system",
        "ops.py::load",
        "ops.py::torch",
        "ops.py::Alias",
        "ops.py::Square.apply.__globals__",
    ],
)
def test_what_a_file_imports_is_not_what_it_offers(project, target):
    (project / "ops.py").write_text(
        f"import os\nfrom os import system\nfrom torch import load\nfrom pathlib import Path as Alias\n{WRONG}"
    )
    assert "ops.py::" in refusal(project, target)


@pytest.mark.parametrize("target", ["ops.py::__builtins__", "ops.py::square.__globals__", "ops.py::", "ops.py::a b"])
def test_a_name_that_no_file_gives_is_refused(project, target):
    assert "is no name that a file gives" in refusal(project, target)


@pytest.mark.parametrize(
    "target",
    [
        "torch.hub:load",
        "torch:hub",
        "torch:load",
        "torch:save",
        "torch:compile",
        "torch:from_file",
        "torch:manual_seed",
        "torch:set_default_dtype",
        "torch:_C",
        "torch:_neg_view",
        "torch:nn.functional.gelu",
        "torch.utils:model_zoo",
        "torch.utils.cpp_extension:load_inline",
        "torch.nn.functional:handle_torch_function",
        "torch.nn.functional:warnings",
        "torch.nn.functional:_no_grad_embedding_renorm_",
        "torch.jit:load",
        "torch.serialization:load",
        "op:hub.load",
        "op:load",
        "op:_C._jit_pass_inline",
        "op:",
    ],
)
def test_what_is_no_differentiable_function_of_torch_is_not_reachable(project, target):
    detail = refusal(project, target)
    assert "namespace" in detail or "is no differentiable public function of torch" in detail


def test_allowing_a_module_does_not_open_torch(project):
    keep(project, "torch.hub:load")
    found = only(replay("corpus", allow_import=["torch", "torch.hub"]))
    assert found.status == "missing-target"


@pytest.mark.parametrize("module", ["os", "subprocess", "importlib"])
def test_a_module_of_the_standard_library_is_not_reachable(project, module):
    assert f"there is no {module} in" in refusal(project, f"{module}:system")


@pytest.mark.parametrize(
    "target", ["torch:sin", "torch.nn.functional:gelu", "torch.special:erf", "op:nn.functional.gelu", "op:sin"]
)
def test_differentiable_functions_of_torch_are_reachable(project, target):
    keep(project, target, name="input")
    assert only(replay("corpus")).status == "passes"


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_table_of_torch_holds_functions_of_tensors_only(namespace):
    names = functions_of(namespace)
    assert len(names) > 15
    assert not [name for name in names if name.startswith("_") or isinstance(names[name], type)]
    dangerous = {"load", "save", "from_file", "hub", "compile", "set_default_device", "manual_seed", "import_ir_module"}
    assert dangerous.isdisjoint(names)


def test_the_project_is_that_of_the_file_before_that_of_the_worker(project, tmp_path_factory, monkeypatch):
    keep(project)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "pyproject.toml").touch()
    (elsewhere / "ops.py").write_text(RIGHT)
    monkeypatch.chdir(elsewhere)
    assert only(replay(project / "corpus")).status == "fails"
    assert only(replay(project / "corpus", root=elsewhere)).status == "passes"
    (project / "ops.py").unlink()
    assert only(replay(project / "corpus")).status == "passes"


def test_a_corpus_outside_every_project_is_about_the_one_that_is_worked_in(project, tmp_path_factory, monkeypatch):
    outside = tmp_path_factory.mktemp("outside")
    path = save(reproducer_of(), outside)
    (project / "sub").mkdir()
    monkeypatch.chdir(project / "sub")
    assert only(replay(path)).status == "fails"


def test_a_source_folder_holds_packages_too(project):
    (project / "src" / "mylib").mkdir(parents=True)
    (project / "src" / "mylib" / "__init__.py").write_text(WRONG)
    keep(project, "mylib:square")
    assert only(replay("corpus")).status == "fails"
