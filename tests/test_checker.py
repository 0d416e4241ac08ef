"""check: what it is given, what it answers, and what it leaves behind."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.autograd import Function

from gradfuzz.checker import Finding, Status, Symptom, Verdict, check
from gradfuzz.errors import CheckError, GradfuzzError


def x_of(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=dtype, requires_grad=True)


class Wrong(Function):
    """A square whose gradient is off by a factor and carries no graph of its own second derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]


class WrongSecond(Function):
    """A cube that saves x * x in forward."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]


class Straight(Function):
    """A straight-through estimator of rounding, by intention."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


class Cut(Function):
    """The gradient is right and carries no graph."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return (2 * g * x * y).detach(), g * x * x


class Needy(Function):
    """The backward wants both of its grad_outputs."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        return 2 * a + 3 * b


def symptoms(verdict):
    return {f.symptom for f in verdict.findings}


# What is given ----------------------------------------------------------------------------------------------------


def test_a_single_tensor_need_not_be_wrapped():
    assert check(torch.sin, x_of()).status is Status.PASS
    assert check(Wrong.apply, x_of()).status is Status.FAIL


def test_given_grad_outputs_are_the_ones_that_count():
    x = x_of()
    handed = []

    class Watch(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            handed.append(g.detach().clone())
            return 2 * g

    given = torch.tensor([1.0, 7.0, -3.0], dtype=torch.float64)
    assert check(Watch.apply, x, (given,), oracles=["wrong-gradient"]).passed
    assert any(torch.equal(g, given) for g in handed)
    handed.clear()
    assert check(Watch.apply, x, oracles=["wrong-gradient"]).passed
    assert not any(torch.equal(g, given) for g in handed)


def test_an_undefined_grad_output_leaves_its_output_unused():
    given = (torch.ones(3, dtype=torch.float64), None)
    verdict = check(Needy.apply, x_of(), given)
    assert symptoms(verdict) == {Symptom.UNDEFINED_GRADIENT}
    assert check(lambda x: (x * 2, x * 3), x_of(), given).passed


@pytest.mark.parametrize("function", [lambda x: x**3, lambda x: x.sin() * x])
def test_order_one_looks_at_first_derivatives_alone(function):
    assert check(function, x_of(), order=1).passed
    assert check(WrongSecond.apply, x_of(), order=1).passed
    assert symptoms(check(Wrong.apply, x_of(), order=1)) >= {Symptom.WRONG_GRADIENT}
    assert symptoms(check(WrongSecond.apply, x_of(), order=2)) == {Symptom.WRONG_SECOND_DERIVATIVE}


def test_oracles_are_names_of_symptoms_or_symptoms():
    x = x_of()
    for name in ("metadata", Symptom.METADATA):
        assert check(Wrong.apply, x, oracles=[name]).passed
    for name in ("wrong-gradient", Symptom.WRONG_GRADIENT):
        assert symptoms(check(Wrong.apply, x, oracles=[name])) == {Symptom.WRONG_GRADIENT}


def test_no_oracle_finds_nothing():
    assert check(Wrong.apply, x_of(), oracles=()).findings == ()


def test_what_is_declared_stochastic_may_differ_from_call_to_call():
    draws = torch.Generator().manual_seed(0)

    def noisy(x):
        return x * torch.randn(3, generator=draws, dtype=torch.float64)

    assert Symptom.NONDETERMINISTIC in symptoms(check(noisy, x_of()))
    declared = check(noisy, x_of(), stochastic=True, oracles=["nondeterministic"])
    assert declared.findings == ()


def test_a_tolerated_difference_between_calls_is_no_finding():
    draws = torch.Generator().manual_seed(0)

    class Noisy(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return 2 * g + 1e-9 * torch.rand(g.shape, generator=draws, dtype=g.dtype)

    assert Symptom.NONDETERMINISTIC in symptoms(check(Noisy.apply, x_of()))
    assert check(Noisy.apply, x_of(), nondet_tol=1e-6, oracles=["nondeterministic"]).findings == ()


def test_a_declared_detached_gradient_is_no_finding():
    inputs = (x_of(), x_of(1.0, 2.0, 3.0))
    assert Symptom.DETACHED in symptoms(check(Cut.apply, inputs))
    assert Symptom.DETACHED in symptoms(check(Cut.apply, inputs, detached=[1]))
    assert Symptom.DETACHED not in symptoms(check(Cut.apply, inputs, detached=[0]))


def test_inputs_are_counted_by_tensors_and_named_so():
    def function(scale, x, y):
        return scale * x * Wrong.apply(y)

    verdict = check(function, (2.0, x_of(), x_of(1.0, 2.0, 3.0)))
    assert {f.where for f in verdict.findings if f.symptom is Symptom.WRONG_GRADIENT} == {"input 1"}


# What is answered -------------------------------------------------------------------------------------------------


def test_a_right_function_passes_with_the_number_of_elements_that_agreed():
    verdict = check(torch.sin, x_of())
    assert verdict == Verdict(Status.PASS, elements=verdict.elements)
    assert verdict.elements >= 3 + 3  # the derivatives by output and the second ones by input


def test_a_function_that_refuses_its_inputs_is_rejected_with_its_words():
    verdict = check(torch.cholesky_inverse, x_of())
    assert verdict.status is Status.REJECTED
    assert verdict.reason.startswith("RuntimeError(")
    assert "\n" not in verdict.reason


def test_inputs_outside_the_domain_are_rejected():
    verdict = check(torch.log, x_of(-1.0, -2.0))
    assert verdict == Verdict(Status.REJECTED, reason="no output is finite: the inputs lie outside the domain")


def test_a_function_without_differentiable_outputs_is_rejected():
    verdict = check(torch.argsort, x_of())
    assert verdict == Verdict(Status.REJECTED, reason="no output is a floating or complex tensor")


def test_what_differences_cannot_tell_is_inconclusive_with_the_reason():
    def at_one_point_only(x):
        if float(x) != 0.5:
            raise ValueError("elsewhere I know nothing")
        return x * 2

    verdict = check(at_one_point_only, x_of(0.5), order=1, oracles=["wrong-gradient"])
    assert verdict.status is Status.INCONCLUSIVE
    assert "first derivative: differences did not converge" in verdict.reason


def test_an_internal_assertion_of_torch_is_a_crash_wherever_it_happens():
    def breaks(x):
        raise RuntimeError('false INTERNAL ASSERT FAILED at "x.cpp":1, please report a bug to PyTorch.')

    verdict = check(breaks, x_of())
    assert [(f.symptom, f.where, f.exception) for f in verdict.findings] == [(Symptom.CRASH, "forward", "RuntimeError")]


def test_a_kink_is_noted():
    verdict = check(torch.relu, x_of(0.0))
    assert verdict.status is Status.PASS
    assert any("kink" in note for note in verdict.notes)
    assert check(torch.relu, x_of(1.0)).notes == ()


def test_a_verdict_is_no_bool():
    with pytest.raises(TypeError, match=r"ask \.passed, \.status or \.findings"):
        bool(check(torch.sin, x_of()))


def test_findings_can_be_filtered_away():
    verdict = check(Wrong.apply, x_of())
    assert verdict.with_findings(()).status is Status.PASS
    assert verdict.with_findings(verdict.findings) == verdict


def test_a_signature_holds_no_values_and_no_shapes():
    one, other = (check(Wrong.apply, x) for x in (x_of(), x_of(3.0, -4.0)))
    signatures = {f.signature("square") for v in (one, other) for f in v.findings}
    assert "square|wrong-gradient|1|rev|input 0|" in signatures
    assert {f.signature("square") for f in one.findings} == {f.signature("square") for f in other.findings}


def test_every_symptom_has_a_meaning():
    assert all(s.meaning for s in Symptom)
    assert len({s.meaning for s in Symptom}) == len(Symptom)


@pytest.mark.parametrize("function", [torch.sin, torch.relu, Wrong.apply, WrongSecond.apply, Straight.apply])
def test_equal_seeds_give_equal_verdicts(function):
    first, second = (check(function, x_of(0.0, -1.25, 2.0), seed=3) for _ in range(2))
    assert str(first) == str(second)


def test_a_seed_may_be_negative_or_large():
    for seed in (-1, 2**63):
        assert check(torch.sin, x_of(), seed=seed).passed


# What is left behind ----------------------------------------------------------------------------------------------


def drawing(x):
    return torch.dropout(x, 0.5, train=True) * torch.rand(())


def rude(x):
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(7)
    torch.use_deterministic_algorithms(True)
    with torch.enable_grad():
        return x * x


def raising(x):
    torch.rand(3)
    torch.set_grad_enabled(False)
    raise ValueError("no")


@pytest.mark.parametrize("function", [torch.sin, Wrong.apply, drawing, rude, raising])
def test_the_state_of_torch_is_left_as_found(function):
    torch.manual_seed(123)
    before = (torch.random.get_rng_state(), torch.initial_seed(), torch.is_grad_enabled(), torch.get_default_dtype(),
              torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())  # fmt: skip
    check(function, x_of())
    after = (torch.random.get_rng_state(), torch.initial_seed(), torch.is_grad_enabled(), torch.get_default_dtype(),
             torch.get_num_threads(), torch.are_deterministic_algorithms_enabled())  # fmt: skip
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_the_state_would_have_changed_without_care():
    state = torch.random.get_rng_state()
    try:
        drawing(x_of())
        assert not torch.equal(state, torch.random.get_rng_state())
    finally:
        torch.random.set_rng_state(state)


def test_a_check_under_no_grad_is_the_same():
    with torch.no_grad():
        assert check(torch.sin, x_of()).passed
        assert check(Wrong.apply, x_of()).status is Status.FAIL
        assert not torch.is_grad_enabled()


def test_inputs_and_grad_outputs_are_read_never_written():
    x, v = x_of(), torch.ones(3, dtype=torch.float64)
    x.grad = torch.full((3,), 5.0, dtype=torch.float64)
    kept, version = x.detach().clone(), x._version

    def writes(t):
        t.detach().mul_(2)
        return t * 2

    for function in (torch.sin, Wrong.apply, writes):
        check(function, x, v)
    assert torch.equal(x.detach(), kept)
    assert x._version == version
    assert x.requires_grad
    assert x.is_leaf
    assert torch.equal(x.grad, torch.full((3,), 5.0, dtype=torch.float64))
    assert torch.equal(v, torch.ones(3, dtype=torch.float64))
    assert v.grad is None


def test_tensors_that_the_function_closes_over_get_no_gradient():
    weight = x_of(1.0, 2.0, 3.0)
    assert check(lambda x: x * weight, x_of()).passed
    assert weight.grad is None


def test_warnings_of_the_function_do_not_reach_the_caller():
    def warns(x):
        warnings.warn("look here", stacklevel=1)
        return x * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check(warns, x_of()).passed


# Misuse -----------------------------------------------------------------------------------------------------------

MISUSES = {
    "no input asks for a gradient": lambda: check(torch.sin, torch.ones(3)),
    "order=4": lambda: check(torch.sin, x_of(), order=4),
    "'wrong-grad' is no symptom": lambda: check(torch.sin, x_of(), oracles=["wrong-grad"]),
    "2 grad_outputs were given for 1": lambda: check(torch.sin, x_of(), (torch.ones(3), torch.ones(3))),
    "grad_output 0 has shape (2,), its output (3,)": lambda: check(torch.sin, x_of(), torch.ones(2)),
}


@pytest.mark.parametrize("said", MISUSES)
def test_misuse_is_one_line_that_names_the_value(said):
    with pytest.raises(CheckError) as error:
        MISUSES[said]()
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert isinstance(error.value, (GradfuzzError, ValueError))


def test_a_finding_reads_as_one_line():
    finding = Finding(Symptom.WRONG_GRADIENT, "input 0", "2.001", "2 +- 2e-10", 1, "rev", "(4,)", "why")
    assert str(finding) == (
        "wrong-gradient: first derivative (rev), input 0, element (4,): got 2.001, want 2 +- 2e-10 - why"
    )
    assert finding.place == "input 0, element (4,)"
