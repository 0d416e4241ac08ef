"""Targets: how they are declared, found by address, and judged."""

from __future__ import annotations

import sys
from pathlib import Path

import hypothesis
import pytest
import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch.autograd import Function

from gradfuzz import strategies as gst
from gradfuzz.case import Argument, Case, Plan, StorageSpec, TensorSpec
from gradfuzz.checker import Status
from gradfuzz.errors import TargetError
from gradfuzz.targets import Target, judge, load_file, load_module, resolve, target
from gradfuzz.targets import judge as judge_of_package
from gradfuzz.targets.place import canonical, file_address, project_root

DRAW = settings(
    max_examples=40,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)

OPS = """
import gradfuzz
import torch
from gradfuzz import strategies as gst
from gradfuzz.targets import Target


@gradfuzz.target(x=gst.tensors("*s"))
def square(x):
    return x * x


sinc = Target(torch.sinc, {"x": gst.tensors("*s")}, name="anything")


def plain(x, w, *, mode="sum"):
    return x * w


NUMBER = 3
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project of one file, with the working folder in it."""
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "ops.py").write_text(OPS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for name in [n for n in sys.modules if n.partition(".")[0] == "mylib"]:
        monkeypatch.delitem(sys.modules, name)  # another test's package of that name
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def names(address):
    return [found.name for found in resolve(address)]


def refusal(call):
    with pytest.raises(TargetError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message
    return message


# --- declarations --------------------------------------------------------------------------------


def double(x, scale=2.0, *, mode="sum"):
    """Twice x."""
    return x * scale


def test_a_decorated_function_can_still_be_called_and_keeps_its_name_and_words():
    declared = target(x=gst.tensors("*s"))(double)
    assert isinstance(declared, Target)
    assert declared(torch.tensor(3.0), mode="mean") == 6.0
    assert (declared.__name__, declared.__doc__) == ("double", "Twice x.")
    assert declared.fn is double
    assert declared.order == 2


def test_options_are_told_apart_from_arguments():
    declared = target(
        x=gst.tensors(""), scale=st.just(2.0), order=1, stochastic=True, detached={"x"}, checks=["detached"]
    )(double)
    assert list(declared.parameters) == ["x", "scale"]
    assert (declared.order, declared.stochastic) == (1, True)
    assert (declared.detached, declared.checks) == (frozenset({"x"}), ("detached",))


def test_an_argument_that_only_goes_by_keyword_is_marked_so():
    declared = target(x=gst.tensors(""), mode=st.just("sum"))(double)
    assert list(declared.parameters) == ["x", "*mode"]
    assert declared.arguments == ("x", "mode")


def test_one_name_in_a_string_is_one_argument_or_check():
    declared = Target(double, {"x": gst.tensors("")}, detached="x", checks="detached")
    assert declared.detached == {"x"}
    assert declared.checks == ("detached",)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Target(3, {"x": gst.tensors("")}), "a target needs a function, got 3"),
        (
            lambda: Target(double, {"x": gst.tensors(""), "scale": 2.0}),
            "double: scale=2.0 is no strategy; write st.just(2.0) for a fixed value",
        ),
        (
            lambda: target(scale=st.just(2.0), x=gst.tensors(""))(double),
            "double(x, scale=2.0, *, mode='sum'): 'scale' is declared as argument 1 but is argument 2; "
            "declare the arguments in the order of the call",
        ),
        (
            lambda: target(x=gst.tensors(""), y=gst.tensors(""), z=gst.tensors(""))(double),
            "double(x, scale=2.0, *, mode='sum') cannot be called with (x, y, z): too many positional arguments",
        ),
        (
            lambda: Target(double, {"*scale": st.just(2.0)}),
            "double(x, scale=2.0, *, mode='sum') cannot be called with (*scale): missing a required argument: 'x'",
        ),
        (
            lambda: Target(double, {"x": gst.tensors("")}, "double", order=5),
            "double: order=5 is not supported; use 1, 2 or 3",
        ),
        (
            lambda: Target(double, {"x": gst.tensors("")}, "double", detached={"w"}),
            "double: detached='w' is no argument; declared are x",
        ),
        (
            lambda: target(x=gst.tensors(""), order=st.integers())(double),
            "order= is an option of the decorator; declare an argument of that name with "
            "gradfuzz.Target(function, {'order': ...})",
        ),
        (
            lambda: target(x=gst.tensors(""))(Function),
            "Function is a class; declare a function that applies it",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused_with_the_remedy(call, message):
    assert refusal(call) == message


def test_an_unknown_check_is_refused_with_those_that_are_known():
    message = refusal(lambda: Target(double, {"x": gst.tensors("")}, "double", checks=["slow"]))
    assert message.startswith("double: checks='slow' is no symptom; known are wrong-gradient, wrong-second-derivative")


# --- names ---------------------------------------------------------------------------------------


def test_a_function_is_named_by_its_file_and_one_of_torchs_as_people_call_it(monkeypatch):
    monkeypatch.chdir(Path(__file__).parents[1])
    assert canonical(double) == "tests/test_targets.py::double"
    assert canonical(torch.sinc) == "torch:sinc"
    assert canonical(torch.linalg.det) == "torch.linalg:det"
    assert canonical(torch.nn.functional.gelu) == "torch.nn.functional:gelu"


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * grad * x**2


def test_the_apply_of_a_function_is_told_apart_by_its_class():
    assert canonical(Cube.apply).endswith("tests/test_targets.py::Cube.apply")


def test_the_project_is_marked_by_its_files_and_otherwise_is_the_working_folder(tmp_path, monkeypatch):
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    monkeypatch.chdir(inner)
    assert project_root() == inner
    (tmp_path / "pyproject.toml").touch()
    assert project_root() == tmp_path
    assert file_address(inner / "ops.py", "f") == "a/b/ops.py::f"


# --- addresses -----------------------------------------------------------------------------------


def test_a_file_stands_for_what_it_declares_in_order(project):
    assert names("ops.py") == ["ops.py::square", "ops.py::sinc"]
    assert names(str(project / "ops.py")) == ["ops.py::square", "ops.py::sinc"]


def test_one_target_of_a_file_is_named_after_two_colons(project):
    (found,) = resolve("ops.py::sinc")
    assert found.name == "ops.py::sinc"
    assert found.fn is torch.sinc


def test_a_folder_stands_for_its_files_but_only_those_that_speak_of_gradfuzz_are_run(project):
    (project / "lib" / "deep").mkdir(parents=True)
    (project / "lib" / "deep" / "ops.py").write_text(OPS)
    (project / "lib" / "script.py").write_text("raise SystemExit('ran')")
    (project / "lib" / "venv").mkdir()
    (project / "lib" / "venv" / "ops.py").write_text(OPS)
    assert names("lib") == ["lib/deep/ops.py::square", "lib/deep/ops.py::sinc"]


def test_a_module_of_the_project_has_the_address_of_its_file(project):
    assert names("ops:square") == ["ops.py::square"]
    assert list(load_module("ops")) == ["square", "sinc"]


def test_an_address_is_the_same_from_every_folder_of_the_project(project, monkeypatch):
    (project / "lib").mkdir()
    monkeypatch.chdir(project / "lib")
    assert names("../ops.py") == ["ops.py::square", "ops.py::sinc"]


def test_imported_targets_belong_to_the_file_that_declares_them(project):
    (project / "more.py").write_text(
        "from ops import square\nfrom gradfuzz.targets import Target\n"
        + OPS[OPS.index("@") :]
        .replace("@gradfuzz", "import gradfuzz, torch\nfrom gradfuzz import strategies as gst\n@gradfuzz", 1)
        .replace("square", "cube")
    )
    assert names("more.py") == ["more.py::cube", "more.py::sinc"]
    assert names("more.py::square") == ["ops.py::square"]


def test_a_file_may_import_its_siblings(project):
    (project / "sibling.py").write_text("FACTOR = 3\n")
    (project / "uses.py").write_text(OPS.replace("import torch\n", "import torch\nfrom sibling import FACTOR\n", 1))
    assert names("uses.py")[0] == "uses.py::square"


def test_a_file_of_a_package_may_import_relatively(project):
    package = project / "mylib"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "base.py").write_text("FACTOR = 3\n")
    (package / "ops.py").write_text(OPS.replace("import torch\n", "import torch\nfrom .base import FACTOR\n", 1))
    assert names("mylib/ops.py")[0] == "mylib/ops.py::square"
    assert sys.modules["mylib.ops"].square.fn is resolve("mylib/ops.py::square")[0].fn
    assert names("mylib.ops:square") == ["mylib/ops.py::square"]


def test_a_package_hidden_by_another_of_its_name_is_still_loaded_by_its_file(project):
    package = project / "json"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "ops.py").write_text(OPS)
    assert names("json/ops.py")[0] == "json/ops.py::square"


def test_a_file_is_run_once_until_it_changes(project):
    first = load_file(project / "ops.py")["square"].fn
    assert load_file(project / "ops.py")["square"].fn is first
    (project / "ops.py").write_text(OPS.replace("x * x", "x + x"))  # of the same length, within the same second
    changed = load_file(project / "ops.py")["square"].fn
    assert changed(torch.tensor(3.0)) == 6.0
    assert first(torch.tensor(3.0)) == 9.0


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("", "'' is no address; write path/file.py, path/file.py::name or package.module:name"),
        ("nothing.py", "nothing.py: there is no such file"),
        ("nothing.py::f", "nothing.py::f: there is no file nothing.py"),
        (
            "nothing",
            "nothing: there is no such file or folder; write path/file.py, path/file.py::name or package.module:name",
        ),
        ("ops.py::cube", "ops.py::cube: there is no 'cube'; its targets are square, sinc"),
        ("ops.py::NUMBER", "ops.py::NUMBER: NUMBER is a int, not a function"),
        (
            "ops.py::plain",
            'ops.py::plain: plain is not declared as a target; write @gradfuzz.target(x=gst.tensors("*s"), '
            'w=gst.tensors("*s")) above it, with what each argument may be',
        ),
        (
            "torch:sinc",
            "torch:sinc: sinc is not declared as a target; declare it in a file of yours, as "
            'sinc = gradfuzz.Target(torch.sinc, {"x": gst.tensors("*s")})',
        ),
        ("no.such:f", "module 'no.such' cannot be imported: No module named 'no'"),
        ("json:f", "json:f: there is no 'f'; it declares no targets"),
        (
            "bare.py",
            "bare.py: the file declares no target; decorate a function with @gradfuzz.target",
        ),
        (
            "empty",
            "empty: no file in this folder declares a target; decorate one with @gradfuzz.target",
        ),
        ("ops.txt", "{root}/ops.txt is not a Python file"),
    ],
)
def test_an_address_without_a_target_is_refused_with_the_remedy(project, address, message):
    (project / "bare.py").write_text("x = 1\n")
    (project / "empty").mkdir()
    (project / "ops.txt").touch()
    assert refusal(lambda: resolve(address)) == message.replace("{root}", str(project))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n\ny = 1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
        ("def f(:\n", "line 1: SyntaxError: invalid syntax"),
        ("import no_such_module\n", "line 1: ModuleNotFoundError: No module named 'no_such_module'"),
        ("raise SystemExit(3)\n", "line 1: SystemExit: 3; guard it with if __name__ == '__main__'"),
        ("raise ValueError('two\\nlines')\n", "line 1: ValueError: two lines"),
        (
            "import gradfuzz\nfrom gradfuzz import strategies as gst\nf = gst.tensors('n,m')\n",
            "line 3: StrategyError: dims 'n,m': 'n,m' is no dimension; "
            "write a name, a number, a sum such as n+1, or *b, #n, ...",
        ),
    ],
)
def test_a_file_that_raises_is_told_on_one_line(project, text, message):
    path = project / "broken.py"
    path.write_text(text)
    assert refusal(lambda: resolve("broken.py")) == f"{path}: {message}"
    path.write_text(OPS)
    assert names("broken.py")[0] == "broken.py::square"


def test_a_module_that_raises_is_told_on_one_line(project):
    (project / "broken.py").write_text("x = 1\ny = 1 / 0\n")
    message = refusal(lambda: resolve("broken:f"))
    assert message.startswith("module 'broken' cannot be imported: line 2: ZeroDivisionError: division by zero")


# --- the judge -----------------------------------------------------------------------------------


def verdicts(declared, count=40):
    """The verdicts on the first cases of a target."""
    found = []

    @hypothesis.seed(11)
    @settings(DRAW, max_examples=count)
    @given(gst.cases(declared, dtypes="float64"))
    def collect(case):
        found.append(judge(declared, case))

    collect()
    return found


def statuses(declared):
    return {verdict.status for verdict in verdicts(declared)}


def inside(check):
    """A function that raises outside its domain, to see that no step leaves it."""

    def function(x):
        if not bool(check(x.detach())):
            raise AssertionError(f"left the domain: {x}")
        return (x * x).sum() + (x * x * x).sum() / 8

    return function


@pytest.mark.parametrize(
    ("constraint", "check"),
    [
        ("positive", lambda x: (x > 0).all()),
        ("unit_interval", lambda x: ((x >= 0) & (x <= 1)).all()),
        ("simplex", lambda x: ((x.sum(-1) - 1).abs() < 1e-6).all()),
        ("symmetric", lambda x: torch.equal(x, x.mT)),
        ("lower_cholesky", lambda x: torch.equal(x, x.tril()) and (x.diagonal(dim1=-2, dim2=-1) > 0).all()),
    ],
)
def test_no_step_of_the_checker_leaves_the_constraint(constraint, check):
    dims = "n n" if constraint in ("symmetric", "lower_cholesky") else "k+1"
    declared = Target(inside(check), {"x": gst.tensors(dims, constraint=constraint, layout="contiguous")}, "inside")
    assert statuses(declared) == {Status.PASS}


def test_without_the_constraint_the_same_function_is_left():
    declared = Target(inside(lambda x: (x > 0).all()), {"x": gst.tensors("n")}, "outside")
    assert Status.REJECTED in statuses(declared)


def test_a_factorisation_is_judged_through_its_constraint():
    parameters = {"a": gst.tensors("n n", constraint="positive_definite")}
    assert statuses(Target(torch.linalg.cholesky, parameters, "cholesky")) == {Status.PASS}


def test_the_function_sees_the_constrained_value_to_the_bit():
    seen = []

    def log(x):
        seen.append(x.detach().clone())
        return x.log()

    declared = Target(log, {"x": gst.tensors("n", constraint="positive")}, "log")
    case = Case(
        "log",
        (StorageSpec("float64", (0.1, 3.7)),),
        (TensorSpec(0, (2,), (1,), requires_grad=True),),
        (Argument("x", input=0),),
    )
    assert judge(declared, case).passed
    assert any(torch.equal(x, torch.tensor([0.1, 3.7], dtype=torch.float64)) for x in seen)
    assert all(bool((x > 0).all()) for x in seen)


def test_on_the_edge_of_a_constraint_the_plain_function_is_judged():
    declared = Target(lambda x: x * x, {"x": gst.tensors("n", constraint="nonnegative")}, "square")
    case = Case(
        "square",
        (StorageSpec("float64", (0.0, 1.5)),),
        (TensorSpec(0, (2,), (1,), requires_grad=True),),
        (Argument("x", input=0),),
    )
    assert judge(declared, case).passed


def test_a_wrong_gradient_is_found_through_a_constraint_and_without():
    for constraint in ("real", "positive"):
        declared = Target(Cube.apply, {"x": gst.tensors("n", constraint=constraint)}, "cube")
        found = [finding.symptom.value for verdict in verdicts(declared) for finding in verdict.findings]
        assert "wrong-gradient" in found


def test_an_argument_by_keyword_may_be_constrained():
    def scaled(x, *, scale):
        assert bool((scale.detach() > 0).all())
        return x * scale.log()

    parameters = {"x": gst.tensors("n"), "*scale": gst.tensors("n", constraint="positive")}
    assert statuses(Target(scaled, parameters, "scaled")) == {Status.PASS}


def test_one_tensor_for_two_constrained_arguments_stays_one():
    same = []

    def product(x, y):
        same.append(x is y)
        return x * y.log()

    parameters = {name: gst.tensors("n", constraint="positive") for name in "xy"}
    case = Case(
        "product",
        (StorageSpec("float64", (1.5,)),),
        (TensorSpec(0, (1,), (1,), requires_grad=True),),
        (Argument("x", input=0), Argument("y", input=0)),
    )
    assert judge(Target(product, parameters, "product"), case).passed
    assert any(same)


class Spy:
    """Takes the place of the checker."""

    def __init__(self):
        self.calls = []

    def __call__(self, func, inputs, grad_outputs, **options):
        self.calls.append((inputs, grad_outputs, options))


def test_the_plan_and_the_declaration_reach_the_checker(monkeypatch):
    spy = Spy()
    monkeypatch.setattr(sys.modules[judge_of_package.__module__], "check", spy)
    declared = Target(
        torch.add,
        {"x": gst.tensors("n"), "i": gst.tensors("n"), "y": gst.tensors("n")},
        "add",
        order=1,
        stochastic=True,
        detached={"y"},
        checks=["detached"],
    )
    spec = TensorSpec(0, (1,), (1,), requires_grad=True)
    case = Case(
        "add",
        (StorageSpec("float64", (1.0,)),),
        (spec, TensorSpec(0, (1,), (1,)), spec),
        tuple(Argument(name, input=i) for i, name in enumerate("xiy")),
        grad_outputs=(None,),
        plan=Plan(order=1, undefined=(False, True, True), seed=9),
    )
    judge(declared, case)
    inputs, grad_outputs, options = spy.calls[0]
    assert [x.requires_grad for x in inputs] == [True, False, True]
    assert grad_outputs == (None,)
    assert options == {
        "order": 1,
        "oracles": ("detached",),
        "seed": 9,
        "undefined": (False, True),  # by the inputs that ask for a gradient
        "stochastic": True,
        "detached": (2,),
        "thorough": False,
        "explain": True,
    }


def test_the_oracles_of_a_plan_win_over_those_of_the_target(monkeypatch):
    spy = Spy()
    monkeypatch.setattr(sys.modules[judge_of_package.__module__], "check", spy)
    declared = Target(torch.sin, {"x": gst.tensors("n")}, "sin", checks=["detached"])
    judge(declared, Case("sin", plan=Plan(oracles=("nonfinite",))))
    judge(Target(torch.sin, {}, "sin"), Case("sin"))
    assert [options["oracles"] for *_, options in spy.calls] == [("nonfinite",), None]
