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
    "torch_today.py::sinc": "wrong-second-derivative",
    "torch_today.py::logaddexp": "nonfinite",
    "torch_today.py::power": "nonfinite",
    "torch_today.py::ldexp": "wrong-gradient",
    "two_outputs.py::mean_and_spread": "undefined-gradient",
    "two_outputs.py::gate": "undefined-gradient",
}

CASES_OF_WRONG = 600
CASES_OF_RIGHT = 100

# The number of cases decides; the time is only there so that a hang does not last for ever.
SECONDS = 120.0


def example(name):
    return next(target for target in resolve(f"{ROOT / 'examples' / name}"))


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_example_is_left_in_peace(name):
    result = gradfuzz.fuzz(example(name), seconds=SECONDS, seed=3, max_examples=CASES_OF_RIGHT, corpus=None)
    assert result.cases > result.rejected + result.inconclusive, "no case was judged"
    assert [str(finding) for finding in result.findings] == []


@pytest.mark.parametrize(("name", "symptom"), WRONG.items())
def test_a_wrong_example_shows_the_symptom_of_its_mistake(name, symptom):
    result = gradfuzz.fuzz(
        example(name),
        seconds=SECONDS,
        seed=3,
        max_examples=CASES_OF_WRONG,
        checks=[symptom],
        max_failures=1,
        corpus=None,
    )
    assert {finding.symptom.value for finding in result.findings} == {symptom}


def test_every_example_is_either_right_or_wrong():
    names = {target.name.removeprefix("examples/") for target in resolve(str(ROOT / "examples"))}
    assert names == {*RIGHT, *WRONG}
