"""The drop-ins: what a caller who comes from torch's gradcheck and gradgradcheck expects, and where ours differ."""

from __future__ import annotations

import inspect
import pickle
import warnings

import pytest
import torch
from faulty import (
    Cube,
    CubeOnce,
    NoBackward,
    Noisy,
    NoisyTwice,
    NoTangent,
    RefusesUndefined,
    SavedSquare,
    SavedSquareAlone,
    TangentThroughNumpy,
    ThroughNumpy,
    WrongCube,
    WrongSecondTangent,
    WrongTangent,
    hooked,
    positive,
    real,
)
from torch.autograd import gradcheck as torch_gradcheck
from torch.autograd import gradgradcheck as torch_gradgradcheck
from torch.autograd.gradcheck import GradcheckError as TorchGradcheckError

import gradfuzz
from gradfuzz import GradcheckError, GradcheckWarning, Symptom, gradcheck, gradgradcheck
from gradfuzz.errors import CheckError

OURS = [gradcheck, gradgradcheck]


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


# What everybody tries first ---------------------------------------------------------------------


def test_a_square_of_a_sum_of_float32_tensors_passes_silently(silent):
    torch.manual_seed(0)
    x = torch.randn(3, requires_grad=True)
    y = torch.randn(3, requires_grad=True)
    assert gradgradcheck(lambda x, y: (x + y) ** 2, (x, y)) is True


def test_a_cube_with_given_grad_outputs_passes_silently(silent):
    torch.manual_seed(1)
    x = torch.randn(2, requires_grad=True)
    assert gradgradcheck(lambda x: x**3, (x,), grad_outputs=(torch.ones(2),)) is True


def test_two_outputs_pass_silently(silent):
    torch.manual_seed(2)
    x = torch.randn(2, requires_grad=True)
    y = torch.randn(2, requires_grad=True)
    assert gradgradcheck(lambda x, y: (x**2 + y**2, x * y), (x, y)) is True


@pytest.mark.parametrize("options", [{"atol": 1e-4, "rtol": 1e-2}, {"check_grad_grad_types": True}])
def test_a_product_of_sine_and_cosine_passes_silently(silent, options):
    torch.manual_seed(3)
    x = torch.randn(3, requires_grad=True)
    assert gradgradcheck(lambda x: torch.sin(x) * torch.cos(x), (x,), **options) is True


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_saved_square_raises_in_every_precision(dtype):
    x = torch.tensor([0.5, 1.25], dtype=dtype, requires_grad=True)
    with pytest.raises(GradcheckError) as raised:
        gradgradcheck(SavedSquare.apply, (x,))
    message = str(raised.value)
    assert message.startswith("wrong-second-derivative: second derivative (rev-rev), input 0, element (0,): ")
    assert "got 0, want 1 +- " in message
    with pytest.raises(GradcheckError, match=r"first derivative \(rev\), input 0, element .*: got .*, want .* \+- "):
        gradgradcheck(SavedSquareAlone.apply, (x,))


# Signatures and the error -----------------------------------------------------------------------


@pytest.mark.parametrize(("ours", "theirs"), [(gradcheck, torch_gradcheck), (gradgradcheck, torch_gradgradcheck)])
def test_every_argument_of_torch_is_accepted_with_its_default(ours, theirs):
    mine = inspect.signature(ours).parameters
    for name, parameter in inspect.signature(theirs).parameters.items():
        assert mine[name].default == parameter.default, name
        assert mine[name].kind in (parameter.kind, inspect.Parameter.POSITIONAL_OR_KEYWORD), name


def test_the_documented_order_of_positional_arguments_holds():
    positional = [
        n
        for n, p in inspect.signature(gradgradcheck).parameters.items()
        if p.kind is not inspect.Parameter.KEYWORD_ONLY
    ]
    assert positional == [
        "func", "inputs", "grad_outputs", "eps", "atol", "rtol", "check_undefined_grad", "check_grad_grad_types",
    ]  # fmt: skip


def test_the_error_is_torchs_own_and_a_runtime_error():
    assert issubclass(GradcheckError, TorchGradcheckError)
    assert issubclass(GradcheckError, RuntimeError)
    assert issubclass(CheckError, ValueError)  # as torch raises where no input asks for a gradient


@pytest.mark.parametrize("judge", OURS)
def test_the_message_has_one_finding_a_line(judge):
    with pytest.raises(GradcheckError) as raised:
        judge(hooked(lambda g: g + 1e-2), real(2, 2))
    error = raised.value
    assert str(error).splitlines() == [str(finding) for finding in error.findings]
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("judge", OURS)
def test_a_wrong_derivative_is_false_where_exceptions_are_unwanted(judge):
    assert judge(WrongCube.apply, real(3), raise_exception=False) is False
    assert judge(Cube.apply, real(3), raise_exception=False) is True


@pytest.mark.parametrize("judge", OURS)
def test_what_cannot_be_judged_is_true_with_the_reason_in_a_warning(judge):
    with pytest.warns(GradcheckWarning, match="no output is finite") as record:
        assert judge(torch.log, -positive(3)) is True
    assert record[0].filename == __file__


@pytest.mark.parametrize("judge", OURS)
def test_an_exception_of_the_function_goes_through_unchanged(judge):
    error = KeyError("mine")

    def refuses(x):
        raise error

    for raise_exception in (True, False):
        with pytest.raises(KeyError) as raised:
            judge(refuses, real(3), raise_exception=raise_exception)
        assert raised.value is error


@pytest.mark.parametrize("judge", OURS)
def test_nothing_of_the_callers_is_changed(judge):
    x = real(3)
    before = x.detach().clone()
    torch.manual_seed(7)
    state = torch.random.get_rng_state()
    with torch.no_grad():
        judge(lambda x: torch.nn.functional.dropout(x.exp()), x)
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(x, before)
    assert x.grad is None


@pytest.mark.parametrize("judge", OURS)
@pytest.mark.parametrize("options", [{"atol": -1.0}, {"rtol": float("nan")}, {"eps": -1e-6}])
def test_a_tolerance_that_is_none_is_refused_by_name(judge, options):
    (name,) = options
    with pytest.raises(CheckError, match=f"{name}=.* give 0 or more"):
        judge(torch.sin, real(3), **options)


# The switches -----------------------------------------------------------------------------------


@pytest.mark.parametrize("judge", OURS)
def test_noise_within_nondet_tol_is_allowed_and_beyond_it_is_not(judge):
    assert found(judge, lambda x: Noisy.apply(x, 1e-6), real(3)) == {Symptom.NONDETERMINISTIC}
    assert gradcheck(lambda x: Noisy.apply(x, 1e-6), real(3), nondet_tol=1e-5) is True


def test_a_double_backward_that_does_not_repeat_is_found():
    assert gradcheck(NoisyTwice.apply, real(3), nondet_tol=1e-6) is True
    assert Symptom.NONDETERMINISTIC in found(gradgradcheck, NoisyTwice.apply, real(3))


@pytest.mark.parametrize("judge", OURS)
def test_undefined_grad_outputs_are_handed_over_unless_switched_off(judge):
    assert Symptom.UNDEFINED_GRADIENT in found(judge, RefusesUndefined.apply, real(3))
    assert judge(RefusesUndefined.apply, real(3), check_undefined_grad=False) is True


def test_forward_mode_is_looked_at_where_asked_for():
    assert gradcheck(WrongTangent.apply, real(3)) is True
    assert gradcheck(Cube.apply, real(3), check_forward_ad=True) is True
    assert found(gradcheck, WrongTangent.apply, real(3), check_forward_ad=True) == {Symptom.FORWARD_MODE}


def test_a_missing_forward_rule_is_found_where_forward_mode_is_asked_for():
    assert gradcheck(NoTangent.apply, real(3)) is True
    assert found(gradcheck, NoTangent.apply, real(3), check_forward_ad=True) == {Symptom.NOT_DIFFERENTIABLE}


def test_the_backward_can_be_left_out():
    only_forward = {"check_forward_ad": True, "check_backward_ad": False}
    assert found(gradcheck, NoBackward.apply, real(3), check_forward_ad=True) == {Symptom.BACKWARD_ERROR}
    assert gradcheck(NoBackward.apply, real(3), **only_forward) is True
    assert found(gradcheck, WrongTangent.apply, real(3), **only_forward) == {Symptom.FORWARD_MODE}


def test_forward_over_reverse_is_looked_at_where_asked_for():
    assert gradgradcheck(torch.sin, real(3), check_fwd_over_rev=True) is True
    assert gradgradcheck(WrongSecondTangent.apply, real(3)) is True
    for both in (True, False):
        with pytest.raises(GradcheckError) as raised:
            gradgradcheck(WrongSecondTangent.apply, real(3), check_fwd_over_rev=True, check_rev_over_rev=both)
        (finding,) = raised.value.findings
        assert (finding.order, finding.mode, finding.where) == (2, "fwd-rev", "gradient of input 0")


def test_without_reverse_over_reverse_a_double_backward_is_not_asked_for():
    assert Symptom.BACKWARD_ERROR in found(gradgradcheck, CubeOnce.apply, real(3))
    assert gradgradcheck(CubeOnce.apply, real(3), check_fwd_over_rev=True, check_rev_over_rev=False) is True


def test_a_backward_that_cannot_be_batched_is_found_where_batching_is_asked_for():
    assert gradcheck(ThroughNumpy.apply, real(3)) is True
    assert found(gradcheck, ThroughNumpy.apply, real(3), check_batched_grad=True) == {Symptom.BATCHED}
    for judge in OURS:
        assert judge(Cube.apply, real(3), check_batched_grad=True) is True


def test_forward_mode_is_batched_where_asked_for():
    batched = {"check_forward_ad": True, "check_batched_forward_grad": True}
    assert gradcheck(torch.mul, (real(3), real(3, seed=1)), **batched) is True
    assert gradcheck(TangentThroughNumpy.apply, real(3), check_forward_ad=True) is True
    assert found(gradcheck, TangentThroughNumpy.apply, real(3), **batched) == {Symptom.BATCHED}


@pytest.mark.parametrize("option", ["check_grad_grad_types", "check_grad_dtypes"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.complex64])
def test_second_order_gradients_have_the_dtypes_of_their_tensors(option, dtype, silent):
    inputs = (real(3, dtype=torch.float32).detach().to(dtype).requires_grad_(), real(3, seed=1, dtype=torch.float32))
    assert gradgradcheck(torch.mul, inputs, **{option: True}) is True


def test_a_second_order_gradient_of_another_dtype_is_found(monkeypatch):
    # Autograd casts gradients to their tensors' dtypes, so a real function cannot show it: let the run say so.
    from gradfuzz.checker.evaluation import Subject

    second = Subject.second

    def cast(self, point, v, u):
        result = second(self, point, v, u)
        if point is None:  # the inputs as given, not the point of judgement
            result.hessian_u = tuple(h.float() for h in result.hessian_u)
        return result

    monkeypatch.setattr(Subject, "second", cast)
    assert gradgradcheck(torch.sin, real(3)) is True
    with pytest.raises(GradcheckError, match=r"metadata: second derivative \(rev-rev\), input 0: got dtype"):
        gradgradcheck(torch.sin, real(3), check_grad_grad_types=True)


@pytest.mark.parametrize("judge", OURS)
def test_fast_mode_and_masked_change_nothing(judge, silent):
    for options in ({"fast_mode": True}, {"masked": True}):
        assert judge(Cube.apply, real(3), **options) is True
        assert judge(WrongCube.apply, real(3), raise_exception=False, **options) is False


def test_no_difference_is_taken_below_a_step_that_the_caller_sets():
    centre = real(2)

    def smallest_step(**options):
        steps = []

        def kinked_nearby(x):
            steps.append(float((x.detach() - centre.detach()).abs().max()))
            return 1e3 * torch.relu(x - centre.detach() - 1e-5) + x.sin()

        gradgradcheck(kinked_nearby, centre, **options)
        return min(step for step in steps if step > 1e-9)  # below are those that look at rounding

    assert smallest_step() < 1e-7
    assert smallest_step(eps=1e-4) > 3e-6  # relative to the scale of the inputs, a tenth here


def test_the_names_are_public():
    assert {"gradcheck", "gradgradcheck", "GradcheckError", "GradcheckWarning"} <= set(gradfuzz.__all__)
