"""The drop-ins beside torch's own checkers: the same functions, the same verdicts, and every exception to that."""

from __future__ import annotations

import warnings

import pytest
import torch
from faulty import (
    ConsistentlyHalved,
    Cube,
    DetachedGradOutput,
    NoBackward,
    Noisy,
    OffByTwoThousandth,
    Tiny,
    ViewsGradOutput,
    WritesGradOutput,
    WrongCube,
    hooked,
    positive,
    real,
)
from torch.autograd import gradcheck as torch_gradcheck
from torch.autograd import gradgradcheck as torch_gradgradcheck

from gradfuzz import GradcheckError, GradcheckWarning, Symptom, gradcheck, gradgradcheck
from gradfuzz.errors import CheckError

OURS = [gradcheck, gradgradcheck]


def accepted(judge, function, inputs):
    """Whether a checker of torch says yes; it has several ways to say no."""
    try:
        return judge(function, inputs)
    except (RuntimeError, ValueError, AttributeError):
        return False


def found(judge, function, inputs, **options):
    """The symptoms that a drop-in raises."""
    with pytest.raises(GradcheckError) as raised:
        judge(function, inputs, **options)
    return {finding.symptom for finding in raised.value.findings}


@pytest.fixture
def silent():
    """Any warning is a failure."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


# As torch: the same functions, judged by torch in double and by ours ----------------------------


def refuses_undefined(g):
    if g is None:
        raise RuntimeError("a grad_output is undefined")


RIGHT = {
    "one input alone": (lambda x: x.mul(5), lambda: real(4)),
    "a list of inputs": (torch.mul, lambda: [real(3), real(3, seed=1)]),
    "an input that is unused": (lambda x, y: 2 * x, lambda: (real(3), real(3, seed=1))),
    "one tensor for two arguments": (lambda x: x * x, lambda: (real(3),)),
    "an argument that asks for nothing": (lambda x, y: x * y, lambda: (real(3), real(3, seed=1).detach())),
    "an argument that is no tensor": (lambda x, p: x**p, lambda: (positive(3), 3)),
    "a custom function": (Cube.apply, lambda: real(3)),
    "an output of integers beside": (lambda x: torch.max(x, dim=0), lambda: real(4)),
    "an output without a graph beside": (lambda x: (x**2, x.detach()), lambda: real(3)),
    "outputs of several dtypes": (lambda x, y: (torch.complex(x, y), x + 1), lambda: (real(2, 2), real(2, 2, seed=1))),
    "a complex function": (lambda z: z * z.conj(), lambda: real(3, dtype=torch.complex128)),
    "a complex modulus": (torch.abs, lambda: real(3, dtype=torch.complex128)),
    "a copy changed in place": (lambda x: x.clone().exp_(), lambda: real(3)),
    "an empty tensor": (torch.exp, lambda: torch.empty(0, 3, dtype=torch.float64, requires_grad=True)),
    "a scalar": (torch.tanh, lambda: real()),
    "a tensor that is no leaf": (torch.sin, lambda: real(3) * 2),
    "a transposed tensor": (lambda x: x @ x, lambda: real(3, 3).detach().t().requires_grad_()),
    "a seeded random function": (
        lambda x: (torch.manual_seed(0), torch.nn.functional.dropout(x, 0.5))[1], lambda: real(4, 4)),
    "batch statistics as outputs": (
        lambda x: torch.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5), lambda: real(4, 3)),
}  # fmt: skip

WRONG = {
    "a wrong factor": (WrongCube.apply, lambda: real(3)),
    "a gradient of the wrong sign": (hooked(lambda g: None if g is None else -g), lambda: real(3)),
    "a gradient that does not repeat": (lambda x: Noisy.apply(x, 1e-6), lambda: real(3)),
    "a gradient not multiplied by grad_output": (hooked(lambda g: g + 1e-2), lambda: real(2, 2)),
    "a complex gradient without its conjugate": (
        hooked(lambda g: None if g is None else g.conj()), lambda: real(3, dtype=torch.complex128)),
    "values that carry no graph": (lambda x: x.detach() ** 2, lambda: real(3)),
    "an undefined grad_output refused": (hooked(refuses_undefined), lambda: real(3)),
}  # fmt: skip


@pytest.mark.parametrize("name", RIGHT)
def test_what_torch_accepts_in_double_is_accepted_silently(name, silent):
    function, inputs = RIGHT[name]
    assert torch_gradcheck(function, inputs())
    assert gradcheck(function, inputs()) is True
    assert torch_gradgradcheck(function, inputs())
    assert gradgradcheck(function, inputs()) is True


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.filterwarnings("ignore:Backwards compatibility")
def test_what_torch_rejects_is_rejected(name):
    function, inputs = WRONG[name]
    assert torch_gradcheck(function, inputs(), raise_exception=False) is False
    assert gradcheck(function, inputs(), raise_exception=False) is False
    assert gradgradcheck(function, inputs(), raise_exception=False) is False


@pytest.mark.parametrize("theirs_and_ours", [(torch_gradcheck, gradcheck), (torch_gradgradcheck, gradgradcheck)])
@pytest.mark.parametrize("raise_exception", [True, False])
def test_inputs_that_ask_for_no_gradient_are_a_value_error(theirs_and_ours, raise_exception):
    for judge in theirs_and_ours:
        with pytest.raises(ValueError, match="grad"):
            judge(torch.exp, torch.ones(3, dtype=torch.float64), raise_exception=raise_exception)


@pytest.mark.parametrize("judge", OURS)
def test_no_output_at_all_is_true_as_with_torch_but_said(judge):
    assert torch_gradcheck(lambda x: (), (real(2),))
    with pytest.warns(GradcheckWarning, match="no output is a floating or complex tensor"):
        assert judge(lambda x: (), (real(2),)) is True


@pytest.mark.parametrize("judge", OURS)
@pytest.mark.parametrize("function", [torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr])
def test_a_sparse_output_is_judged_as_a_dense_one(judge, function):
    assert judge(lambda x: function(x * x), real(2, 2))


@pytest.mark.parametrize("judge", OURS)
def test_a_sparse_input_is_judged_by_its_values(judge):
    x = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    assert judge(torch.Tensor.to_dense, x, masked=True)


@pytest.mark.parametrize(
    ("judge", "options"),
    [
        (gradcheck, {"check_backward_ad": False}),
        (gradcheck, {"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True}),
        (gradcheck, {"check_batched_forward_grad": True}),
        (gradgradcheck, {"check_rev_over_rev": False}),
        (gradgradcheck, {"check_rev_over_rev": False, "check_fwd_over_rev": True, "check_batched_grad": True}),
    ],
)
def test_switches_that_contradict_each_other_are_refused(judge, options):
    with pytest.raises(CheckError, match=r"check_.*=?True"):
        judge(torch.sin, real(3), **options)


def test_grad_outputs_that_do_not_fit_are_refused_by_shape_and_number():
    with pytest.raises(CheckError, match=r"grad_output 0 has shape \(2,\), its output \(3,\)"):
        gradgradcheck(torch.sin, real(3), grad_outputs=torch.ones(2, dtype=torch.float64))
    with pytest.raises(CheckError, match="1 grad_outputs were given for 2"):
        gradgradcheck(lambda x: (x**2, x**3), real(3), grad_outputs=(torch.ones(3, dtype=torch.float64),))


@pytest.mark.parametrize("count", [1, 2])
def test_grad_outputs_of_outputs_without_a_graph_may_be_left_out(count):
    ones = (torch.ones(3, dtype=torch.float64),) * count
    assert gradgradcheck(lambda x: (x**2, x.detach()), real(3), grad_outputs=ones) is True


# Stricter than torch, on purpose ----------------------------------------------------------------

STRICTER = {
    "a wrong first derivative that is consistent": (ConsistentlyHalved.apply, lambda: real(3), Symptom.WRONG_GRADIENT),
    "a gradient that does not follow its grad_output": (
        hooked(lambda g: g + 1e-2), lambda: real(3), Symptom.UNDEFINED_GRADIENT),
    "one of two gradients without a graph": (
        DetachedGradOutput.apply, lambda: (real(3), real(3, seed=1)), Symptom.DETACHED),
    "a contiguous grad_output taken for granted": (ViewsGradOutput.apply, lambda: real(2, 3), Symptom.LAYOUT_DEPENDENT),
}  # fmt: skip


@pytest.mark.parametrize("name", STRICTER)
def test_what_gradgradcheck_of_torch_lets_pass_is_found(name):
    function, inputs, symptom = STRICTER[name]
    assert torch_gradgradcheck(function, inputs())
    assert symptom in found(gradgradcheck, function, inputs())


def test_a_backward_that_writes_to_its_grad_output_is_found():
    for judge in OURS:
        assert Symptom.MUTATION in found(judge, WritesGradOutput.apply, real(3))


@pytest.mark.parametrize("function", [OffByTwoThousandth.apply, Tiny.apply])
def test_the_default_tolerances_forgive_what_torchs_forgive_and_zero_forgives_nothing(function):
    assert torch_gradcheck(function, real(3))
    assert gradcheck(function, real(3)) is True
    assert found(gradcheck, function, real(3), atol=0.0, rtol=0.0) == {Symptom.WRONG_GRADIENT}


@pytest.mark.parametrize("raise_exception", [True, False])
def test_an_exception_of_a_backward_is_a_finding_with_its_type_and_text(raise_exception):
    with pytest.raises(RuntimeError, match=r"^this has no backward$"):
        torch_gradcheck(NoBackward.apply, real(3), raise_exception=raise_exception)
    with pytest.raises(GradcheckError, match=r"backward-error: .* got RuntimeError\(this has no backward\)"):
        gradcheck(NoBackward.apply, real(3))
    assert gradcheck(NoBackward.apply, real(3), raise_exception=False) is False


# More lenient than torch, on purpose ------------------------------------------------------------

LENIENT = {
    "float32": (torch.tanh, lambda: torch.linspace(-1, 1, 4, requires_grad=True)),
    "bfloat16": (torch.tanh, lambda: torch.linspace(-1, 1, 4, dtype=torch.bfloat16, requires_grad=True)),
    "a kink": (torch.relu, lambda: torch.zeros(2, dtype=torch.float64, requires_grad=True)),
    "an infinite slope": (torch.sqrt, lambda: torch.zeros(2, dtype=torch.float64, requires_grad=True)),
    "an expanded input": (lambda x: x**2, lambda: torch.ones((), dtype=torch.float64).expand(3).requires_grad_()),
    "a large input": (lambda x: x**2, lambda: torch.full((2,), 1e8, dtype=torch.float64, requires_grad=True)),
    "a random function": (torch.nn.functional.dropout, lambda: real(8)),
    "tensors in a list": (lambda xs: torch.stack(xs).prod(0), lambda: ([real(2), real(2, seed=1)],)),
    "an output that is no tensor": (lambda x: (x.exp(), "note"), lambda: real(2)),
}


@pytest.mark.parametrize("name", LENIENT)
@pytest.mark.filterwarnings("ignore:Input #0 requires gradient")
def test_what_torch_cannot_judge_passes_silently(name):
    function, inputs = LENIENT[name]
    assert not (accepted(torch_gradcheck, function, inputs()) and accepted(torch_gradgradcheck, function, inputs()))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert gradcheck(function, inputs()) is True
        assert gradgradcheck(function, inputs()) is True


def test_an_undefined_grad_output_may_be_given():
    ones = torch.ones(3, dtype=torch.float64)
    assert gradgradcheck(lambda x: (x**2, x**3), real(3), grad_outputs=(ones, None)) is True
