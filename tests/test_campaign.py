"""The campaign: what is found, how small it gets, and that nothing found is lost."""

from __future__ import annotations

import itertools
import pickle
import time

import hypothesis
import pytest
import torch

import gradfuzz
from gradfuzz import strategies as gst
from gradfuzz.campaign import round as rounds
from gradfuzz.campaign import store, supervisor
from gradfuzz.campaign.event import (
    CampaignFinished,
    CampaignStarted,
    FindingNew,
    FindingShrunk,
    TargetFinished,
    TargetStarted,
)
from gradfuzz.campaign.flight import Recorder, Tower
from gradfuzz.campaign.round import Round, round_seed
from gradfuzz.campaign.settings import make_settings
from gradfuzz.case import Argument, Case, StorageSpec, TensorSpec
from gradfuzz.checker import Finding, Status, Symptom, Verdict
from gradfuzz.corpus import accept, load
from gradfuzz.errors import CampaignError, CheckError, TargetError

# What a search by a number of cases is given, so that a slow machine does not end it.
AMPLE = 300.0


class CachedCube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x * x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (square,) = ctx.saved_tensors
        return 3 * grad * square


def plain(x):
    return x.sin()


def refusing(x):
    raise ValueError("x is not to my taste")


CACHED = gradfuzz.Target(CachedCube.apply, {"x": gst.tensors("*s", dtype="float64")}, "ops.py::cached_cube")
PLAIN = gradfuzz.Target(plain, {"x": gst.tensors("*s", dtype="float64")}, "ops.py::plain")
REFUSING = gradfuzz.Target(refusing, {"x": gst.tensors("*s")}, "ops.py::refusing")


def seen(symptom=Symptom.WRONG_GRADIENT, where="input 0"):
    return Finding(symptom, where, "got", "want", 1, "rev")


def elements(case):
    return case.inputs[0].numel


@pytest.fixture
def judged_by(monkeypatch):
    """Replace the judge by a function from a case to what it shows."""

    def install(shows):
        def judge(target, case, *, explain=True):
            found = tuple(shows(case))
            return Verdict(Status.FAIL if found else Status.PASS, found)

        for module in (rounds, store):
            monkeypatch.setattr(module, "judge", judge)

    return install


def search(target=PLAIN, **options):
    options = {"seconds": AMPLE, "max_examples": 60, "seed": 0, "corpus": None, **options}
    return gradfuzz.fuzz(target, **options)


# The whole way, with the real judge ------------------------------------------------------------------


def test_a_cached_square_is_found_shrunk_to_a_scalar_confirmed_and_saved(tmp_path):
    result = search(CACHED, max_examples=3, corpus=tmp_path / "corpus")
    (finding,) = result.findings
    assert finding.symptom is Symptom.WRONG_SECOND_DERIVATIVE
    assert finding.case.inputs[0].size == ()
    assert finding.reliability == "3/3"
    saved = load(finding.path)
    assert (saved.signature, saved.expect, saved.case) == (finding.signature, "pass", finding.case)
    assert (saved.found.seed, saved.found.round) == (0, finding.round)
    assert list((tmp_path / "corpus").rglob("*.json")) == [finding.path]


def test_a_right_function_has_no_findings_and_its_cases_are_counted():
    result = search(max_examples=8)
    assert (result.findings, result.cases, result.errors) == ([], 8, [])


def test_a_function_that_refuses_everything_is_counted_with_its_reason():
    (tally,) = search(REFUSING, max_examples=5).tallies
    assert (tally.cases, tally.rejected, tally.accepted) == (5, 5, 0)
    assert "x is not to my taste" in tally.reason
    assert tally.mostly_rejected


def test_a_function_that_accepts_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr("gradfuzz.campaign.hunt.FUTILE", 20)
    monkeypatch.setattr("gradfuzz.campaign.hunt.CASES", 10)
    assert search(REFUSING, max_examples=1000).cases == 20


# Rounds ----------------------------------------------------------------------------------------------


def test_every_campaign_target_and_round_has_its_own_seed():
    places = itertools.product((0, 1), ("a.py::f", "a.py::g"), (0, 1))
    assert len({round_seed(*place) for place in places}) == 8


def test_the_same_seed_draws_the_same_cases_and_another_draws_others(judged_by):
    def drawn(seed):
        cases = []
        judged_by(lambda case: cases.append(case) or ())
        search(seed=seed, max_examples=20)
        return cases

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_the_smallest_case_of_a_signature_is_kept(judged_by):
    judged_by(lambda case: [seen()] if elements(case) >= 2 else [])
    (finding,) = search().findings
    assert elements(finding.case) == 2
    assert finding.cases_to_find <= 60


def test_two_defects_of_one_case_are_each_shrunk_by_themselves(judged_by):
    def shows(case):
        large = [seen()] if elements(case) >= 2 else []
        return [*large, *([seen(where="input 1")] if elements(case) >= 4 else [])]

    judged_by(shows)
    result = search()
    assert {f.where: elements(f.case) for f in result.findings} == {"input 0": 2, "input 1": 4}


def test_a_defect_that_hides_behind_another_is_found_and_shrunk(judged_by):
    judged_by(lambda case: [seen(), seen(where="input 1")] if elements(case) >= 2 else [])
    result = search()
    assert {f.where: elements(f.case) for f in result.findings} == {"input 0": 2, "input 1": 2}


def test_shrinking_does_not_slip_to_another_defect(judged_by):
    def shows(case):
        return [seen()] if elements(case) >= 4 else [seen(where="input 1")] if elements(case) == 2 else []

    judged_by(shows)
    found = {f.where: elements(f.case) for f in search().findings}
    assert found == {"input 0": 4, "input 1": 2}


def test_a_known_signature_is_swallowed_and_the_search_goes_on(judged_by):
    judged_by(lambda case: [seen()] if elements(case) else [seen(where="input 1")])
    known = seen().signature(PLAIN.name)
    result = search(baseline=[known])
    assert [f.where for f in result.findings] == ["input 1"]
    assert result.tallies[0].known == (known,)


def test_a_baseline_file_lists_signatures_between_comments(judged_by, tmp_path):
    judged_by(lambda case: [seen()])
    baseline = tmp_path / "baseline.txt"
    baseline.write_text(f"# accepted in spring\n\n{seen().signature(PLAIN.name)}\n")
    assert search(baseline=baseline).findings == []


def test_an_accepted_reproducer_is_not_reported_again(judged_by, tmp_path):
    judged_by(lambda case: [seen()])
    (finding,) = search(corpus=tmp_path).findings
    accept(finding.path, expect="fail")
    again = search(corpus=tmp_path)
    assert again.findings == []
    assert again.tallies[0].known == (finding.signature,)


def test_a_second_campaign_keeps_one_reproducer_of_a_signature(judged_by, tmp_path):
    judged_by(lambda case: [seen()] if elements(case) >= 2 else [])
    first = search(corpus=tmp_path, seed=1).findings
    second = search(corpus=tmp_path, seed=2).findings
    assert signatures_of(first) == signatures_of(second)
    assert len(list(tmp_path.rglob("*.json"))) == 1


def signatures_of(findings):
    return {finding.signature for finding in findings}


def test_a_finding_that_does_not_hold_is_named_flaky_and_saved_all_the_same(judged_by, tmp_path):
    shown = []
    judged_by(lambda case: [seen()] if not shown and not shown.append(case) else [])
    (finding,) = search(corpus=tmp_path).findings
    assert finding.flaky
    assert finding.reliability == "0/3"
    assert load(finding.path).case == finding.case


def test_a_smaller_case_that_does_not_hold_gives_way_to_the_one_that_does(judged_by):
    times = {}

    def shows(case):
        times[case] = times.get(case, 0) + 1
        fickle = elements(case) < 4 and times[case] > 2
        return [seen()] if elements(case) >= 2 and not fickle else []

    judged_by(shows)
    (finding,) = search().findings
    assert finding.reliability == "3/3"
    assert elements(finding.case) >= 4


def test_a_number_of_cases_is_kept_to_exactly(judged_by):
    judged_by(lambda case: [])
    assert search(max_examples=437).cases == 437


def test_shrinking_does_not_count_as_cases(judged_by):
    judged_by(lambda case: [seen()] if elements(case) >= 2 else [])
    assert search(max_examples=30).cases == 30


def test_max_failures_ends_the_campaign(judged_by):
    judged_by(lambda case: [seen()] if elements(case) >= 2 else [])
    assert search().cases == 60
    ended = search(max_failures=1)
    assert len(ended.findings) == 1
    assert ended.cases < 60


def test_a_shrink_without_time_keeps_what_was_seen(judged_by, monkeypatch, tmp_path):
    monkeypatch.setattr("gradfuzz.campaign.hunt.RESERVE", 0.0)
    monkeypatch.setattr(rounds, "MOST_SHRINK_SECONDS", 0.0)
    judged_by(lambda case: [seen(), seen(where="input 1")] if elements(case) >= 2 else [])
    result = search(corpus=tmp_path)
    assert len(result.findings) == 2
    assert all(elements(load(f.path).case) >= 2 for f in result.findings)


def test_a_shrink_that_makes_no_progress_ends(judged_by, monkeypatch):
    monkeypatch.setattr(rounds, "STALE", 3)
    calls = []
    judged_by(lambda case: calls.append(case) or ([seen()] if elements(case) >= 6 else []))
    search(max_examples=40)
    monkeypatch.setattr(rounds, "STALE", 10_000)
    few = len(calls)
    calls.clear()
    search(max_examples=40)
    assert few < len(calls)


def test_a_round_is_over_at_its_deadline_with_nothing_drawn(judged_by):
    judged_by(lambda case: [seen()])
    search = Round(PLAIN, make_settings(seed=0), 1, frozenset(), deadline=time.monotonic())
    search.run()
    assert (search.drawn, search.first) == (0, {})


def test_checks_and_order_narrow_what_is_judged(judged_by):
    plans = []
    judged_by(lambda case: plans.append(case.plan) or [])
    search(order=1, checks=["wrong-gradient", "metadata"], exclude_checks=["metadata"])
    assert {(plan.order, plan.oracles) for plan in plans} == {(1, ("wrong-gradient",))}


def test_what_a_target_declares_is_narrowed_and_never_widened(judged_by):
    plans = []
    judged_by(lambda case: plans.append(case.plan) or [])
    parameters = {"x": gst.tensors("*s")}
    modest = gradfuzz.Target(plain, parameters, "ops.py::modest", order=1, checks=["metadata", "detached"])
    search(modest, order=2, checks=["wrong-gradient", "metadata"])
    assert {(plan.order, plan.oracles) for plan in plans} == {(1, ("metadata",))}


def test_dtypes_are_those_asked_for(judged_by):
    dtypes = set()
    judged_by(lambda case: dtypes.update(s.dtype for s in case.storages) or [])
    search(gradfuzz.Target(plain, {"x": gst.tensors("*s")}, "ops.py::wide"), dtypes=[torch.float32, "bfloat16"])
    assert dtypes == {"float32", "bfloat16"}


# What goes wrong -------------------------------------------------------------------------------------


def test_strategies_that_raise_are_an_error_of_their_target_alone(judged_by):
    judged_by(lambda case: [])

    def broken(n):
        raise KeyError("no such size")

    bad = gradfuzz.Target(plain, {"x": gst.tensors("*s").map(broken)}, "ops.py::bad")
    result = search([bad, PLAIN])
    assert result.errors == ["ops.py::bad: drawing its arguments raised KeyError: 'no such size'"]
    assert result.cases == 60


def test_a_judge_that_fails_is_said_to_be_our_error(monkeypatch):
    def judge(target, case, *, explain=True):
        raise ZeroDivisionError("one over nothing")

    monkeypatch.setattr(rounds, "judge", judge)
    (error,) = search().errors
    assert "an error of gradfuzz: ZeroDivisionError: one over nothing (test_campaign.py, line" in error


def test_a_case_that_cannot_be_judged_is_rejected(monkeypatch):
    def judge(target, case, *, explain=True):
        raise CheckError("no input asks for a gradient")

    monkeypatch.setattr(rounds, "judge", judge)
    (tally,) = search(max_examples=4).tallies
    assert (tally.rejected, tally.reason) == (4, "no input asks for a gradient")


def test_a_corpus_that_cannot_be_written_loses_no_finding(judged_by, tmp_path):
    judged_by(lambda case: [seen()])
    (tmp_path / "corpus").write_text("a file is in the way")
    (finding,) = search(corpus=tmp_path / "corpus").findings
    assert finding.path is None
    assert str(tmp_path / "corpus") in finding.unsaved


def test_ctrl_c_leaves_what_was_found_on_disk(judged_by, tmp_path):
    cases = []

    def shows(case):
        cases.append(case)
        if len(cases) == 5:
            raise KeyboardInterrupt
        return [seen()] if len(cases) == 3 else []

    judged_by(shows)
    events = []
    with pytest.raises(KeyboardInterrupt):
        search(corpus=tmp_path, on_event=events.append)
    assert events[-1].result.interrupted
    (path,) = tmp_path.rglob("*.json")
    assert load(path).signature == seen().signature(PLAIN.name)


def test_torch_generator_is_left_as_found():
    torch.manual_seed(7)
    before = torch.random.get_rng_state()
    search(max_examples=3)
    assert torch.equal(before, torch.random.get_rng_state())


def test_events_tell_a_campaign_in_order(judged_by):
    judged_by(lambda case: [seen()] if elements(case) >= 2 else [])
    events = []
    result = search(on_event=events.append)
    kinds = [type(event) for event in events]
    expected = [CampaignStarted, TargetStarted, FindingNew, FindingShrunk, TargetFinished, CampaignFinished]
    assert [kind for kind in kinds if kind in expected] == expected
    assert events[-1].result == result
    new, shrunk = (next(e.finding for e in events if isinstance(e, kind)) for kind in (FindingNew, FindingShrunk))
    assert new.signature == shrunk.signature
    assert elements(new.case) >= elements(shrunk.case)


# Who may be searched ---------------------------------------------------------------------------------


def test_what_is_no_target_is_refused():
    with pytest.raises(TargetError, match="is no target; decorate it with"):
        gradfuzz.fuzz(plain, seconds=1)


def test_several_workers_need_targets_with_an_address():
    with pytest.raises(CampaignError, match=r"nowhere.py::x cannot be resolved by its address.*use workers=1"):
        gradfuzz.fuzz(gradfuzz.Target(plain, {"x": gst.tensors("*s")}, "nowhere.py::x"), workers=2)


# In a test suite -------------------------------------------------------------------------------------


def test_assert_gradients_is_content_with_a_right_function():
    gradfuzz.assert_gradients(PLAIN, max_examples=3)


def test_assert_gradients_says_what_is_wrong_and_with_which_call():
    with pytest.raises(AssertionError) as failure:
        gradfuzz.assert_gradients(CACHED, max_examples=3)
    text = str(failure.value)
    assert text.startswith("ops.py::cached_cube: wrong-second-derivative: second derivative (rev-rev), input 0")
    assert "x = torch.tensor(" in text


def test_assert_gradients_fails_when_no_case_was_conclusive():
    with pytest.raises(AssertionError, match=r"no case of 4 was conclusive \(4 rejected, 0 inconclusive\): ValueError"):
        gradfuzz.assert_gradients(REFUSING, max_examples=4)


def test_given_makes_an_ordinary_hypothesis_test_that_shrinks(judged_by, monkeypatch):
    def judge(target, case):
        return Verdict(Status.FAIL, (seen(),)) if elements(case) >= 2 else Verdict(Status.PASS)

    monkeypatch.setattr("gradfuzz.campaign.suite.judge", judge)
    drawn = []

    @hypothesis.seed(0)
    @hypothesis.settings(max_examples=60, database=None, deadline=None)
    @gradfuzz.given(PLAIN)
    def check(case):
        drawn.append(case)
        case.check()

    with pytest.raises(AssertionError, match=r"ops\.py::plain: wrong-gradient"):
        check()
    assert elements(drawn[-1].case) == 2


def test_given_assumes_refused_cases_away(monkeypatch):
    monkeypatch.setattr(
        "gradfuzz.campaign.suite.judge",
        lambda target, case: Verdict(Status.REJECTED if elements(case) else Status.PASS),
    )
    passed = []

    @hypothesis.settings(
        max_examples=10, database=None, deadline=None, suppress_health_check=list(hypothesis.HealthCheck)
    )
    @gradfuzz.given(PLAIN)
    def check(case):
        case.check()
        passed.append(elements(case.case))

    check()
    assert set(passed) == {0}


@pytest.mark.parametrize("above", [True, False])
def test_given_takes_settings_from_above_or_below(monkeypatch, above):
    monkeypatch.setattr("gradfuzz.campaign.suite.judge", lambda target, case: Verdict(Status.PASS))
    drawn = []
    three = hypothesis.settings(max_examples=3, database=None, deadline=None)

    def check(case):
        drawn.append(case)
        case.check()

    given = gradfuzz.given(PLAIN)
    (three(given(check)) if above else given(three(check)))()
    assert len(drawn) == 3


def test_given_lets_a_case_take_its_time(monkeypatch):
    @gradfuzz.given(PLAIN)
    def check(case):
        raise NotImplementedError

    assert check._hypothesis_internal_use_settings.deadline is None


def test_given_refuses_what_is_no_target():
    with pytest.raises(TargetError, match="is no target"):
        gradfuzz.given(plain)


# Processes -------------------------------------------------------------------------------------------

FAULTY = """
import os, time
import torch
import gradfuzz
from gradfuzz import strategies as gst

X = gst.tensors("*s", dtype="float64")

@gradfuzz.target(x=X)
def wrong(x):
    return x.detach() * x

@gradfuzz.target(x=X)
def dies(x):
    if x.dim() == 1:
        os.abort()
    return x.sin()

@gradfuzz.target(x=X)
def hangs(x):
    if x.dim() == 1:
        time.sleep(1000)
    return x.sin()

@gradfuzz.target(x=X)
def vanishes(x):
    if os.path.exists("gone"):
        raise ValueError("gone")
    return x.sin()
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "pyproject.toml").touch()
    (tmp_path / "faulty.py").write_text(FAULTY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_death_is_a_finding_and_takes_no_other_target_down(project):
    addresses = ["faulty.py::dies", "faulty.py::wrong"]
    result = gradfuzz.fuzz(addresses, workers=2, seconds=AMPLE, max_examples=30, seed=0, checks=["wrong-gradient"])
    found = {finding.target: finding for finding in result.findings}
    assert found["faulty.py::dies"].symptom is Symptom.CRASH
    assert found["faulty.py::dies"].got.startswith("SIGABRT")
    assert len(load(found["faulty.py::dies"].path).case.inputs[0].size) == 1
    assert found["faulty.py::wrong"].symptom is Symptom.WRONG_GRADIENT
    assert found["faulty.py::wrong"].case.inputs[0].size == ()
    assert result.errors == []


def test_a_hang_is_a_finding(project, monkeypatch):
    monkeypatch.setattr(supervisor, "HANG_SECONDS", 3.0)
    result = gradfuzz.fuzz("faulty.py::hangs", workers=2, seconds=AMPLE, max_examples=30, seed=0)
    assert [finding.symptom for finding in result.findings] == [Symptom.HANG]
    assert load(result.findings[0].path).signature == result.findings[0].signature


def test_a_crash_of_the_baseline_is_not_reported(project):
    baseline = ["faulty.py::dies|crash||||"]
    result = gradfuzz.fuzz("faulty.py::dies", workers=2, seconds=AMPLE, max_examples=30, seed=0, baseline=baseline)
    assert result.findings == []
    assert result.tallies[0].known == tuple(baseline)


def test_the_case_in_flight_can_be_read_by_another_process(tmp_path):
    tower = Tower(tmp_path / "flight")
    recorder = Recorder(tmp_path / "flight")
    assert (tower.case(), tower.seconds()) == (None, 0.0)
    case = Case("ops.py::plain", (StorageSpec("float64", (0.5,)),), (TensorSpec(0, (), ()),), (Argument("x", input=0),))
    recorder(case)
    assert tower.case() == pickle.dumps(case)
    assert tower.seconds() >= 0.0
    recorder(None)
    assert tower.case() is None
    tower.close()
    assert not (tmp_path / "flight").exists()
