"""The examples: the right ones are left in peace, the wrong ones are found, and what is found is small."""

from __future__ import annotations

from pathlib import Path

import pytest

import gradfuzz
from gradfuzz.targets import resolve

ROOT = Path(__file__).resolve().parent.parent

RIGHT = [
    "activation.py::swish",
    "loss.py::smooth_cross_entropy",
    "norm.py::rms_norm",
    "rows.py::rows",
    "scan.py::scan",
    "torch_today.py::tanh",
    "two_outputs.py::rotation",
]

# The symptom that a person who knows the mistake would expect.
WRONG = {
    "activation.py::swish_cached": "wrong-second-derivative",
    "activation.py::celu": "wrong-gradient",
    "loss.py::smooth_l1": "wrong-gradient",
    "loss.py::focal": "wrong-gradient",
    "norm.py::fused_rms_norm": "wrong-second-derivative",
    "norm.py::centered_norm": "wrong-gradient",
    "rows.py::rows_in_place": "wrong-gradient",
    "rows.py::scaled_rows": "wrong-gradient",
    "scan.py::scan_with_state": "wrong-second-derivative",
    "scan.py::scan_off_by_one": "wrong-gradient",
    "torch_today.py::sinc": "nonfinite",
    "torch_today.py::logaddexp": "nonfinite",
    "torch_today.py::power": "nonfinite",
    "torch_today.py::ldexp": "wrong-gradient",
    "two_outputs.py::mean_and_spread": "undefined-gradient",
    "two_outputs.py::gate": "undefined-gradient",
}

# What the fault shrinks to: by tensor argument, its shape and its elements.
SMALLEST = {
    "activation.py::swish_cached": [((), (1.0078125,))],
    "loss.py::focal": [((), (1.0078125,))],
    "norm.py::centered_norm": [((2,), (1.0078125, 1.0234375))],
    "rows.py::rows_in_place": [((1, 1), (1.0078125,)), ((2,), (0, 0))],
    "rows.py::scaled_rows": [((1, 2), (1.0078125, 1.0234375)), ((1,), (1.0234375,)), ((1,), (0,))],
    "torch_today.py::sinc": [((), (0.0,))],
    "torch_today.py::ldexp": [((), (1.0078125,)), ((), (-1,))],
    "two_outputs.py::mean_and_spread": [((1,), (1.0078125,))],
    "two_outputs.py::gate": [((), (1.0078125,)), ((), (1.0234375,))],
}

# Those whose elements depend on what was drawn first; the shapes do not.
SMALLEST_SHAPES = {
    "activation.py::celu": [()],
    "norm.py::fused_rms_norm": [(2,), (2,)],  # a row of one is nearly constant, and so is its derivative
}

CASES_OF_WRONG = 600
CASES_OF_RIGHT = 60

# The number of cases decides; the time is only there so that a hang does not last for ever.
SECONDS = 120.0


def example(name):
    return next(target for target in resolve(f"{ROOT / 'examples' / name}"))


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_example_is_left_in_peace(name):
    result = gradfuzz.fuzz(example(name), seconds=SECONDS, seed=3, max_examples=CASES_OF_RIGHT, corpus=None)
    assert result.cases > result.rejected + result.inconclusive, "no case was judged"
    assert [str(finding) for finding in result.findings] == []


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_example_shows_the_symptom_of_its_mistake_in_its_smallest_form(name):
    result = gradfuzz.fuzz(
        example(name),
        seconds=SECONDS,
        seed=3,
        max_examples=CASES_OF_WRONG,
        checks=[WRONG[name]],
        max_failures=1,
        corpus=None,
    )
    assert {finding.symptom.value for finding in result.findings} == {WRONG[name]}
    case = min((finding.case for finding in result.findings), key=elements_in)
    if name in SMALLEST:
        assert [(spec.size, case.storages[spec.storage].elements) for spec in case.inputs] == SMALLEST[name]
    if name in SMALLEST_SHAPES:
        assert [spec.size for spec in case.inputs] == SMALLEST_SHAPES[name]


def elements_in(case):
    return sum(len(storage.elements) for storage in case.storages)


def test_every_example_is_either_right_or_wrong():
    names = {target.name.removeprefix("examples/") for target in resolve(str(ROOT / "examples"))}
    assert names == {*RIGHT, *WRONG}
