"""The oracles: properties that every derivative has, cheapest first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from gradfuzz.checker.oracles.aliasing import aliasing_is_irrelevant, views_are_as_good
from gradfuzz.checker.oracles.batched import batched_is_the_loop, batched_second_is_the_loop
from gradfuzz.checker.oracles.derivative import derivatives_agree
from gradfuzz.checker.oracles.determinism import calls_repeat, second_backward_repeats
from gradfuzz.checker.oracles.expansion import expansion_is_irrelevant
from gradfuzz.checker.oracles.forward_mode import forward_mode_agrees
from gradfuzz.checker.oracles.global_state import state_is_kept
from gradfuzz.checker.oracles.identities import identities_hold
from gradfuzz.checker.oracles.layout import layout_is_irrelevant
from gradfuzz.checker.oracles.mask import mask_is_irrelevant
from gradfuzz.checker.oracles.metadata import gradients_fit
from gradfuzz.checker.oracles.modes import modes_agree
from gradfuzz.checker.oracles.mutation import memory_is_kept, saved_memory_is_kept
from gradfuzz.checker.oracles.precision import precision_is_kept
from gradfuzz.checker.oracles.refusal import backward_returns
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
        drawn: Whether a case of a campaign runs it only when its seed says so: it compares two runs of the same
            function, and the next case will do for the others.
    """

    judge: Callable[[Run], Iterator[Finding]]
    symptoms: frozenset[Symptom]
    ends: bool = False
    drawn: bool = False


def _oracle(
    judge: Callable[[Run], Iterator[Finding]], *symptoms: Symptom, ends: bool = False, drawn: bool = False
) -> Oracle:
    return Oracle(judge, frozenset(symptoms), ends, drawn)


def drawn(seed: int) -> tuple[Oracle, ...]:
    """Give the oracles that a case with this seed runs: all for 0, else the steady ones and one of the others."""
    if seed == 0:
        return ORACLES
    others = [oracle for oracle in ORACLES if oracle.drawn]
    chosen = others[seed % len(others)]
    return tuple(o for o in ORACLES if not o.drawn or o is chosen)


# Cheapest first: a later oracle relies on what the earlier ones established.
ORACLES: tuple[Oracle, ...] = (
    _oracle(memory_is_kept, Symptom.MUTATION, ends=True),
    _oracle(state_is_kept, Symptom.GLOBAL_STATE, ends=True),
    _oracle(backward_returns, Symptom.BACKWARD_ERROR, Symptom.NOT_DIFFERENTIABLE, Symptom.METADATA),
    _oracle(calls_repeat, Symptom.NONDETERMINISTIC, ends=True),
    _oracle(gradients_fit, Symptom.METADATA),
    _oracle(saved_memory_is_kept, Symptom.MUTATION, ends=True, drawn=True),
    _oracle(second_backward_repeats, Symptom.NONDETERMINISTIC, ends=True, drawn=True),
    _oracle(value_is_the_same_without_gradients, Symptom.VALUE_CHANGES, drawn=True),
    _oracle(undefined_is_zero, Symptom.UNDEFINED_GRADIENT, drawn=True),
    _oracle(mask_is_irrelevant, Symptom.REQUIRES_GRAD_MASK, drawn=True),
    _oracle(layout_is_irrelevant, Symptom.LAYOUT_DEPENDENT, drawn=True),
    _oracle(expansion_is_irrelevant, Symptom.LAYOUT_DEPENDENT, drawn=True),
    _oracle(aliasing_is_irrelevant, Symptom.ALIASING, drawn=True),
    _oracle(views_are_as_good, Symptom.ALIASING, drawn=True),
    _oracle(identities_hold, Symptom.WRONG_GRADIENT, Symptom.WRONG_SECOND_DERIVATIVE, Symptom.DETACHED),
    _oracle(
        derivatives_agree,
        Symptom.WRONG_GRADIENT,
        Symptom.WRONG_SECOND_DERIVATIVE,
        Symptom.DETACHED,
        Symptom.NONFINITE,
    ),
    _oracle(forward_mode_agrees, Symptom.FORWARD_MODE),
    _oracle(modes_agree, Symptom.WRONG_SECOND_DERIVATIVE, Symptom.NONFINITE, Symptom.FORWARD_MODE),
    _oracle(batched_is_the_loop, Symptom.BATCHED, drawn=True),
    _oracle(batched_second_is_the_loop, Symptom.BATCHED, drawn=True),
    _oracle(precision_is_kept, Symptom.PRECISION, drawn=True),
)

__all__ = ["ORACLES", "Oracle", "drawn"]
