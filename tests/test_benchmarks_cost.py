from __future__ import annotations

import math

import pytest
from click.testing import CliRunner

from benchmarks.cost import SUBJECTS, Contestant, Of, calls, cases, direct, main, median, peer, row

BY_NAME = {subject.name: subject for subject in SUBJECTS}


@pytest.mark.parametrize("make", [cases, direct], ids=["a case", "a direct check"])
def test_a_check_calls_the_function_as_often_at_any_size(make):
    subject = BY_NAME["softmax"]
    assert calls(make, subject, subject.inputs(4)) == calls(make, subject, subject.inputs(256))


def test_the_slow_mode_of_torch_calls_it_more_often_the_larger_the_input():
    subject = BY_NAME["softmax"]

    def slow(function, inputs):
        return peer(function, inputs, fast=False)

    assert calls(slow, subject, subject.inputs(16)) > 2 * calls(slow, subject, subject.inputs(4))


def test_calls_are_counted_by_what_a_contestant_stands_for():
    subject = BY_NAME["x * sigmoid(x)"]

    def thrice(function, inputs):
        return Contestant(lambda: [function(*inputs) for _ in range(6)], turns=3)

    assert calls(thrice, subject, subject.inputs(4)) == 2


def test_every_function_of_the_table_passes_so_that_the_price_is_that_of_a_pass():
    rows = [row(subject, 4, slow=False, repetitions=1) for subject in SUBJECTS]
    assert [r.name for r in rows if r.verdict != "pass"] == []
    assert math.isnan(median(rows, "median", 4).ratios.slow)


def test_a_number_that_was_not_asked_for_is_a_dash():
    assert Of(1.0, 2.0, 3.0).show(6, ".1f") == "   1.0   2.0   3.0     -"


def test_bad_options_are_refused_by_value():
    for options, words in (
        (["--only", "nothing"], "--only 'nothing' is no function here"),
        (["--sizes", "many"], "--sizes 'many' is no list of numbers"),
        (["--sizes", "1"], "the smallest size is 4"),
    ):
        result = CliRunner().invoke(main, options)
        assert result.exit_code == 1
        assert words in result.output
