"""The zoo in a quick form: every faulty function is found, and no twin is complained of."""

from __future__ import annotations

import pytest

import gradfuzz
from benchmarks import bridge

ENTRIES = {entry.name: entry for entry in bridge.load()}

# They end or stop the process they run in, which here would be the test's own.
UNTAMED = {"crash", "hang"}

KINDS = {
    *("wrong-gradient", "wrong-second-derivative", "missing-second-order-term", "detached", "undefined-gradient"),
    *("mutation", "nonfinite", "nondeterminism", "precision", "complex", "forward-mode", "batched-gradient"),
    *("value-changes", "global-state", "broadcast", "layout", "empty", "zero-dim", "duplicates", "argument"),
    *("size-dependent", "requires-grad-mask", "rare-region", "aliasing", "crash", "hang"),
    *("not-twice-differentiable",),
}

# A faulty function is given more cases than its twin: its search ends with the first finding.
CASES_OF_FAULTY = 400
CASES_OF_TWIN = 60

# The number of cases decides; the time is only there so that a hang does not last for ever.
SECONDS = 120.0

# Faults that are not found yet, each with the reason.
MISSED: dict[str, str] = {
    "leaky_slope_in_float32": "an error of 1.5e-8 is below what differences are trusted to",
    "score_products_in_bfloat16": "rounding that scatters to both sides is not told from the dtype's own",
}
# Each of these runs to its end.
CASES_OF_MISSED = 100


def faulty(name):
    marks = [pytest.mark.xfail(reason=MISSED[name], strict=True)] if name in MISSED else []
    return pytest.param(name, id=name, marks=marks)


@pytest.mark.parametrize("name", [faulty(name) for name, e in ENTRIES.items() if e.kind not in UNTAMED])
def test_the_fault_is_found(name, tmp_path):
    target = bridge.target(ENTRIES[name], "faulty")
    result = gradfuzz.fuzz(
        target,
        seconds=SECONDS,
        seed=1,
        max_examples=CASES_OF_MISSED if name in MISSED else CASES_OF_FAULTY,
        max_failures=1,
        corpus=tmp_path,
    )
    assert result.findings, f"{result.cases} cases, none of which showed it"
    statuses = [outcome.status for finding in result.findings for outcome in gradfuzz.replay(finding.path, target)]
    assert "fails" in statuses


@pytest.mark.parametrize("name", ENTRIES)
def test_the_twin_is_left_in_peace(name):
    entry = ENTRIES[name]
    target = bridge.target(entry, "fixed")
    result = gradfuzz.fuzz(target, seconds=SECONDS, seed=2, max_examples=CASES_OF_TWIN, corpus=None)
    assert result.cases > result.rejected + result.inconclusive, "no case was judged"
    assert [str(f) for f in result.findings if not bridge.blames_torch(entry, f.mode)] == []


def test_names_are_distinct_and_kinds_are_known():
    entries = bridge.load()
    assert len(ENTRIES) == len(entries)
    assert {entry.kind for entry in entries} == KINDS


def test_a_folder_without_a_zoo_is_refused(tmp_path):
    with pytest.raises(bridge.ZooError, match=r"holds no entry\.py; name the folder of a zoo"):
        bridge.load(tmp_path)


def test_an_unknown_description_is_refused_by_name():
    with pytest.raises(bridge.ZooError, match="described as dict is unknown"):
        bridge.strategy({})


def test_only_nested_forward_mode_of_a_function_with_a_forward_rule_is_excused():
    with_rule, without = ENTRIES["logistic_jvp_of_input"], ENTRIES["huber_left_tail"]
    assert bridge.blames_torch(with_rule, "fwd-fwd")
    assert not bridge.blames_torch(with_rule, "rev-fwd")
    assert not bridge.blames_torch(without, "fwd-fwd")
