"""The second derivative by forward mode: each mode is judged, and a mode without a rule is no fault."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function

from gradfuzz.checker import Status, check
from gradfuzz.checker.evaluation import Subject
from gradfuzz.checker.nested import along
from gradfuzz.errors import CheckError


def x_of(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=dtype, requires_grad=True)


def modes_of(verdict):
    return {(f.symptom.value, f.order, f.mode) for f in verdict.findings}


class Sine(Function):
    """Right in every mode that torch gives a Function: nested forward mode loses a tangent, by torch's own fault."""

    @staticmethod
    def forward(x):
        return torch.sin(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.cos(x)

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * torch.cos(x)


class SineOfConstantTangent(Sine):
    """Right at first order in both modes; the forward rule counts its factor as a constant."""

    @staticmethod
    def jvp(ctx, t):
        (x,) = ctx.saved_tensors
        return t * torch.cos(x.detach())


class SineThatRaisesForward(Sine):
    """A forward rule is defined, and fails."""

    @staticmethod
    def jvp(ctx, t):
        raise TypeError("no tangent today")


class SineWithoutRule(Function):
    """No forward rule: nothing is promised."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.sin(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * torch.cos(x)


class HalvedSecond(Function):
    """The backward of a product with a rule of its own, whose forward rule is wrong: fwd-rev alone shows it."""

    @staticmethod
    def forward(g, x):
        return g * torch.cos(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, h):
        g, x = ctx.saved_tensors
        return h * torch.cos(x), -h * g * torch.sin(x)

    @staticmethod
    def jvp(ctx, tg, tx):
        g, x = ctx.saved_tensors
        return tg * torch.cos(x) - tx * g * torch.sin(x) / 2


class SineByHalvedSecond(Sine):
    """Right but for forward over reverse."""

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return HalvedSecond.apply(g, x)


@pytest.mark.parametrize(
    "function",
    [torch.tanh, torch.sigmoid, lambda x: x**3, lambda x: torch.softmax(x, 0), lambda x: x.outer(x), torch.relu],
)
@pytest.mark.parametrize("seed", range(4))
def test_a_right_function_is_right_in_every_mode(function, seed):
    verdict = check(function, (x_of(),), seed=seed)
    assert verdict.status is Status.PASS, (verdict.findings, verdict.reason)


@pytest.mark.parametrize("seed", range(4))
def test_complex_functions_are_right_in_every_mode(seed):
    z = x_of(0.5 + 1j, -1.25 + 0.5j, dtype=torch.complex128)
    for function in (torch.exp, lambda z: z * z.conj(), lambda z: z.abs() ** 2, lambda z: z.real * z.imag):
        assert check(function, (z,), seed=seed).status is Status.PASS


def test_forward_over_reverse_alone_is_found():
    found = modes_of(check(SineByHalvedSecond.apply, (x_of(),)))
    assert ("wrong-second-derivative", 2, "fwd-rev") in found
    assert not {mode for _, _, mode in found} & {"rev-rev", "rev-fwd", "rev", "fwd"}


def test_a_tangent_that_counts_its_factor_as_a_constant_is_found_by_reverse_over_forward():
    found = modes_of(check(SineOfConstantTangent.apply, (x_of(),)))
    assert ("wrong-second-derivative", 2, "rev-fwd") in found
    assert ("wrong-second-derivative", 2, "rev-rev") not in found
    assert ("forward-mode", 1, "fwd") not in found


def test_the_tangent_that_torch_loses_is_said_to_be_torchs():
    verdict = check(Sine.apply, (x_of(),))
    assert modes_of(verdict) == {("wrong-second-derivative", 2, "fwd-fwd")}
    assert "torch loses the outer tangent" in verdict.findings[0].explanation


def test_a_function_without_a_forward_rule_is_left_in_peace():
    assert check(SineWithoutRule.apply, (x_of(),)).status is Status.PASS


def test_a_forward_rule_that_raises_is_a_finding():
    verdict = check(SineThatRaisesForward.apply, (x_of(),))
    assert [(f.symptom.value, f.mode, f.exception) for f in verdict.findings] == [("forward-mode", "fwd", "TypeError")]


def test_modes_can_be_chosen():
    assert check(Sine.apply, (x_of(),), modes=("rev-fwd", "fwd-rev")).status is Status.PASS
    assert check(SineByHalvedSecond.apply, (x_of(),), modes=()).status is Status.PASS
    assert check(SineByHalvedSecond.apply, (x_of(),), modes=("fwd-rev",)).status is Status.FAIL


def test_an_unknown_mode_is_refused_by_name():
    with pytest.raises(CheckError, match="'rev' is no mode; known are rev-rev, fwd-rev, rev-fwd, fwd-fwd"):
        check(torch.tanh, (x_of(),), modes=("rev",))


def test_all_modes_give_one_number():
    subject = Subject(lambda x: torch.exp(x) * x.flip(0), (x_of(),))
    x, ones = subject.point, (torch.ones(3, dtype=torch.float64),)
    second = subject.second(x, ones, ones).hessian_u[0]
    nested = along(subject, x, ones, ones, ones)
    assert nested.missing == {}
    assert torch.allclose(nested.fwd_rev[0], second)
    assert torch.allclose(nested.rev_fwd[0], second)
    assert torch.allclose(nested.fwd_fwd[0].sum(), second.sum())
    assert torch.allclose(nested.gradients[0], subject.gradient(x, ones).gradients[0])
