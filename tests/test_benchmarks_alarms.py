"""The sweeps for false alarms and for modes that disagree."""

from __future__ import annotations

import json
import os
import time

import pytest
import torch
from click.testing import CliRunner

from benchmarks import catalogue, false_alarms, modes, plain
from benchmarks.explained import explained
from benchmarks.modes import Disagreement

BY_NAME = {p.name: p for p in plain.PLAIN}


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, g):
        return 3 * g


def sweep(monkeypatch, name, function, *arguments):
    monkeypatch.setattr(plain, "PLAIN", (plain.Plain(name, function, ((3,),)),))
    options = ["--dtype", "float64", "--samples", "0", "--draws", "1", "--only", name, *arguments]
    return CliRunner().invoke(false_alarms.main, options)


def test_a_wrong_function_is_reported_as_unexplained(monkeypatch):
    result = sweep(monkeypatch, "planted", Doubled.apply)
    assert result.exit_code == 1
    assert "UNEXPLAINED planted|wrong-gradient|1|rev" in result.output
    assert "1 unexplained" in result.output


def test_a_right_function_is_not(monkeypatch):
    result = sweep(monkeypatch, "planted", torch.tanh, "--peer")
    assert result.exit_code == 0, result.output
    assert "0 distinct findings" in result.output


def test_the_table_of_what_was_looked_at_is_consulted(monkeypatch):
    result = sweep(monkeypatch, "nextafter", Doubled.apply)
    assert "UNEXPLAINED" not in result.output
    assert "1 distinct findings: 1 defects" in result.output
    assert explained("nextafter|wrong-gradient|1|rev") is not None
    assert explained("nextafter|mutation|1|rev") is None


def test_a_process_that_dies_is_said_and_replaced(monkeypatch):
    result = sweep(monkeypatch, "dies", lambda x: os._exit(3))
    assert "dies (float64, normal): died: exit code 3" in result.output
    assert "dies (float64, small): died: exit code 3" in result.output


def test_a_call_that_does_not_come_back_is_killed(monkeypatch):
    monkeypatch.setattr(false_alarms, "MOST_SECONDS", 0.5)
    monkeypatch.setattr(plain, "FAMILIES", ("normal",))
    result = sweep(monkeypatch, "hangs", lambda x: time.sleep(600))
    assert "hangs (float64, normal): killed: no answer in 0.5 s" in result.output


def test_what_came_of_the_calls_before_a_death_is_kept():
    def dies_at_the_second(x):
        if x.detach()[0] == second:
            os._exit(3)
        return x * x

    task = false_alarms.Task("normal", "square", "float64")
    second = BY_NAME["square"].inputs("normal", torch.float64, 1)[0].detach()[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain, "PLAIN", (plain.Plain("square", dies_at_the_second, ((5,),)),))
        tally = false_alarms.Worker({"samples": 0, "draws": 2, "peer": False, "seed": 1}).ask(task)
    assert tally.counts == {"pass": 1}
    assert tally.ending == "died: exit code 3"


def test_everything_is_written_as_plain_data(monkeypatch, tmp_path):
    path = tmp_path / "sweep.json"
    sweep(monkeypatch, "planted", Doubled.apply, "--json", str(path))
    first = json.loads(path.read_text())[0]
    assert first["counts"] == {"fail": 1}
    assert list(first["findings"]) == ["planted|wrong-gradient|1|rev"]


def test_torch_s_own_checkers_are_asked_at_their_defaults():
    x = torch.tensor([0.5, -1.0], dtype=torch.float64, requires_grad=True)
    assert false_alarms._peer_fails(Doubled.apply, [x])
    assert not false_alarms._peer_fails(torch.tanh, [x])


@pytest.mark.parametrize("family", plain.FAMILIES)
def test_every_plain_function_takes_every_family(family):
    for function in plain.PLAIN:
        inputs = function.inputs(family, torch.float64, 1)
        assert all(torch.equal(a, b) for a, b in zip(inputs, function.inputs(family, torch.float64, 1), strict=True))
        function.function(*inputs)


def test_families_differ_in_size_and_kind():
    draw = {family: BY_NAME["variance"].inputs(family, torch.float64, 0)[0].detach().abs() for family in plain.FAMILIES}
    assert draw["small"].max() < 1e-2 < 1e2 < draw["large"].max()
    assert set(draw["fuzzed"].flatten().tolist()) & {abs(s) for s in plain.SPECIALS}


def the_entry(name):
    return next(e for e in catalogue.entries(torch.float64) if catalogue.name_of(e) == name)


def disagreements(name, count):
    calls = catalogue.calls(the_entry(name), torch.float64, count)
    return {one.mode for call in calls for one in modes.compare(call, seed=1) if isinstance(one, Disagreement)}


def test_modes_that_disagree_are_told_from_those_that_do_not():
    assert disagreements("linalg.solve", 4) == {"rev-fwd", "fwd-fwd"}
    assert disagreements("tanh", 4) == set()


def test_the_sweep_of_modes_names_each_with_its_reason():
    result = CliRunner().invoke(modes.main, ["--only", "linalg.solve", "--samples", "2"])
    assert result.exit_code == 0
    assert "disagrees linalg.solve" in result.output
    assert "stored" in result.output


def test_the_catalogue_leaves_torch_s_generator_as_it_was():
    before = torch.random.get_rng_state()
    first, second = (list(catalogue.calls(the_entry("sinh"), torch.float64, 3)) for _ in range(2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert first
    assert all(torch.equal(a.arguments[0], b.arguments[0]) for a, b in zip(first, second, strict=True))
