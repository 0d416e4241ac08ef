"""The oracles: properties that every derivative has, cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gradfuzz.checker.oracles.batched import batched_is_the_loop
from gradfuzz.checker.oracles.derivative import derivatives_agree
from gradfuzz.checker.oracles.forward_mode import forward_mode_agrees
from gradfuzz.checker.oracles.inputs import aliasing_is_irrelevant, mask_is_irrelevant
from gradfuzz.checker.oracles.layout import layout_is_irrelevant
from gradfuzz.checker.oracles.precision import precision_is_kept
from gradfuzz.checker.oracles.structure import (
    backward_returns,
    calls_repeat,
    gradients_fit,
    memory_is_kept,
    state_is_kept,
)
from gradfuzz.checker.oracles.undefined import undefined_is_zero
from gradfuzz.checker.oracles.value import value_is_the_same_without_gradients
from gradfuzz.checker.run import Run
from gradfuzz.checker.verdict import Finding, Symptom


class Oracle(NamedTuple):
    """One property.

    Attributes:
        judge: Yields a finding for every violation that it sees.
        symptoms: What it may find; it is not asked where none of them is wanted.
        ends: Whether later oracles make no sense once it objects: they assume what it establishes.
    """

    judge: Callable[[Run], Iterator[Finding]]
    symptoms: frozenset[Symptom]
    ends: bool = False


def _oracle(judge: Callable[[Run], Iterator[Finding]], *symptoms: Symptom, ends: bool = False) -> Oracle:
    return Oracle(judge, frozenset(symptoms), ends)


# Cheapest first: a later oracle relies on what the earlier ones established.
ORACLES: tuple[Oracle, ...] = (
    _oracle(memory_is_kept, Symptom.MUTATION, ends=True),
    _oracle(state_is_kept, Symptom.GLOBAL_STATE, ends=True),
    _oracle(backward_returns, Symptom.BACKWARD_ERROR, Symptom.NOT_DIFFERENTIABLE, Symptom.METADATA),
    _oracle(calls_repeat, Symptom.NONDETERMINISTIC, ends=True),
    _oracle(gradients_fit, Symptom.METADATA),
    _oracle(value_is_the_same_without_gradients, Symptom.VALUE_CHANGES),
    _oracle(undefined_is_zero, Symptom.UNDEFINED_GRADIENT),
    _oracle(mask_is_irrelevant, Symptom.REQUIRES_GRAD_MASK),
    _oracle(layout_is_irrelevant, Symptom.LAYOUT_DEPENDENT),
    _oracle(aliasing_is_irrelevant, Symptom.ALIASING),
    _oracle(
        derivatives_agree,
        Symptom.WRONG_GRADIENT,
        Symptom.WRONG_SECOND_DERIVATIVE,
        Symptom.DETACHED,
        Symptom.NONFINITE,
    ),
    _oracle(forward_mode_agrees, Symptom.FORWARD_MODE),
    _oracle(batched_is_the_loop, Symptom.BATCHED),
    _oracle(precision_is_kept, Symptom.PRECISION),
)

__all__ = ["ORACLES", "Oracle"]
