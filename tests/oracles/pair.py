"""A function that is wrong on purpose beside its twin that is not, and what must be said of both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import Function

from gradfuzz.checker import Status, check


def x_of(*values, dtype=torch.float64):
    return torch.tensor(values or (0.5, -1.25, 2.0), dtype=dtype, requires_grad=True)


def matrix(rows=2, columns=3, dtype=torch.float64):
    values = torch.linspace(-1.3, 1.7, rows * columns, dtype=torch.float64)
    return values.reshape(rows, columns).to(dtype).requires_grad_()


def operator(forward, backward):
    """A Function of two plain functions: forward(x...) and backward(grad, x...)."""

    class Operator(Function):
        @staticmethod
        def forward(ctx, *inputs):
            ctx.save_for_backward(*inputs)
            return forward(*inputs)

        @staticmethod
        def backward(ctx, *grads):
            return backward(*grads, *ctx.saved_tensors)

    return Operator.apply


@dataclass(frozen=True)
class Pair:
    """A function that is wrong, its twin that is not, and what must be said of the first.

    Attributes:
        repeatable: Whether the fault shows in the same way in every check.
    """

    fault: Callable[..., Any]
    twin: Callable[..., Any]
    inputs: tuple[Any, ...]
    symptom: str
    order: int | None
    mode: str
    where: str
    repeatable: bool = True


class Pairs:
    """What holds for every pair; a subclass lists them as functions that make one."""

    pairs: tuple[Callable[[], Pair], ...] = ()

    def pytest_generate_tests(self, metafunc):
        metafunc.parametrize("make", self.pairs, ids=lambda make: make.__name__)

    def test_a_fault_is_found_for_what_it_is(self, make):
        pair = make()
        verdict = check(pair.fault, pair.inputs)
        assert verdict.status is Status.FAIL, verdict
        kinds = [(f.symptom.value, f.order, f.mode, f.where) for f in verdict.findings]
        assert (pair.symptom, pair.order, pair.mode, pair.where) in kinds, kinds

    def test_its_correct_twin_is_left_in_peace(self, make):
        pair = make()
        verdict = check(pair.twin, pair.inputs)
        assert [str(f) for f in verdict.findings] == []
        assert verdict.status is Status.PASS, verdict.reason

    def test_asking_for_its_symptom_alone_finds_it_too(self, make):
        pair = make()
        verdict = check(pair.fault, pair.inputs, oracles=[pair.symptom])
        assert {f.symptom.value for f in verdict.findings} == {pair.symptom}

    def test_the_same_seed_gives_the_same_verdict(self, make):
        pair = make()
        if pair.repeatable:
            first, second = (check(pair.fault, pair.inputs, seed=5) for _ in range(2))
            assert str(first) == str(second)
