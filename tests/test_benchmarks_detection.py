from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from benchmarks.detection import Count, Row, main, row, total
from benchmarks.faults import PLANTED

NAMED = {fault.name: fault for fault in PLANTED}


def test_a_plain_fault_is_found_by_everyone_and_its_twin_by_nobody():
    seen = row(NAMED["100 % too much"], draws=2)
    assert seen.found == Count(2, 2, 2)
    assert seen.alarms == Count()
    assert seen.symptom == "wrong-gradient"


def test_a_small_fault_is_found_by_this_check_alone():
    seen = row(NAMED["0.05 % too much"], draws=2)
    assert seen.found == Count(2, 0, 0)
    assert seen.alarms == Count()


def test_a_fault_below_an_absolute_tolerance_is_found_by_this_check_alone():
    assert row(NAMED["below atol"], draws=2).found == Count(2, 0, 0)


def test_an_alarm_on_a_twin_would_be_shown():
    seen = Row("a fault", 10, Count(10, 5, 0), Count(1, 0, 0), 0, "wrong-gradient", "draw 3: a wrong gradient")
    assert "ALARM draw 3" in str(seen)
    assert "1 alarms on 10 correct ones" in total([seen])


def test_a_peer_that_was_not_asked_is_a_dash_and_no_zero():
    seen = row(NAMED["the sign"], draws=1, peers=False)
    assert str(seen).split()[2:] == ["100", "%", "-", "-", "0", "-", "-", "wrong-gradient"]
    assert "torch" not in total([seen])


def test_faults_have_names_of_their_own_and_thirty_kinds_at_least():
    assert len(NAMED) == len(PLANTED) >= 30


def test_the_table_is_printed_and_written_as_json(tmp_path):
    path = tmp_path / "rows.json"
    result = CliRunner().invoke(main, ["--draws", "1", "--only", "the sign", "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert "found 1 of 1 kinds in every draw" in result.output
    assert json.loads(path.read_text())[0]["found"] == {"gradfuzz": 1, "slow": 1, "fast": 1}


def test_an_unknown_fault_is_refused_with_those_that_are_known():
    result = CliRunner().invoke(main, ["--only", "nothing"])
    assert result.exit_code == 1
    assert "--only 'nothing' is no fault here; known are 100 % too much" in result.output


@pytest.mark.parametrize("fault", PLANTED, ids=lambda fault: fault.name)
def test_twins_give_the_same_value_where_both_ask_for_a_gradient(fault):
    import torch

    once, again = (fault.draw(torch.Generator().manual_seed(3)) for _ in range(2))
    left, right = fault.faulty(*once), fault.correct(*again)
    for a, b in zip(*((o if isinstance(o, tuple) else (o,)) for o in (left, right)), strict=True):
        assert torch.allclose(a, b, equal_nan=True)
