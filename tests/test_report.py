"""Reports: the JSON contract, and what people and machines read of a campaign."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gradfuzz.campaign.event import (
    CampaignFinished,
    CampaignStarted,
    FindingNew,
    FindingShrunk,
    Progress,
    TargetFinished,
    TargetStarted,
)
from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.result import Result, Tally
from gradfuzz.checker.verdict import Finding as Seen
from gradfuzz.checker.verdict import Symptom
from gradfuzz.errors import CampaignError
from gradfuzz.report.base import open_report
from gradfuzz.report.doctor import examine
from gradfuzz.report.summary import closing, details, heading, one_line, warnings
from gradfuzz.report.terminal import TerminalReport

SEEN = Seen(
    symptom=Symptom.WRONG_SECOND_DERIVATIVE,
    where="input 0",
    got="0.2",
    want="0.25 +- 3e-11",
    order=2,
    mode="rev-rev",
    element="()",
    explanation="a saved value counts as a constant",
)
FINDING = Finding(
    target="act.py::swish",
    seen=SEEN,
    case=None,
    round=0,
    seconds_to_find=0.41234,
    cases_to_find=37,
    path=Path("corpus", "act.py_swish", "wrong-second-derivative-0123456789ab.json"),
    reliability="3/3",
)
FAULTY = Tally("act.py::swish", cases=812, rejected=3, inconclusive=5, seconds=2.1, findings=(FINDING,))
CLEAN = Tally("act.py::relu", cases=1000, seconds=2.0)
RESULT = Result(seed=7, seconds=4.1, tallies=(FAULTY, CLEAN))
EVENTS = [
    CampaignStarted(("act.py::swish", "act.py::relu"), 60.0, 7),
    TargetStarted("act.py::swish"),
    Progress(FAULTY),
    FindingNew(FINDING),
    FindingShrunk(FINDING),
    TargetFinished(FAULTY),
    CampaignFinished(RESULT),
]


def report(name, path, events=EVENTS):
    made = open_report(f"{name}:{path}")
    for event in events:
        made.handle(event)
    made.close()
    return path.read_text(encoding="utf-8")


# JSON ------------------------------------------------------------------------------------------------


def test_the_json_report_is_the_contract_to_the_letter(tmp_path):
    document = json.loads(report("json", tmp_path / "new" / "report.json"))
    assert list(document) == ["format", "version", "seed", "torch", "gradfuzz", "targets"]
    assert (document["format"], document["version"], document["seed"]) == ("gradfuzz-report", 1, 7)
    faulty, clean = document["targets"]
    assert list(faulty) == ["name", "cases", "rejected", "inconclusive", "seconds", "findings"]
    assert (faulty["name"], faulty["cases"], faulty["rejected"], faulty["inconclusive"]) == ("act.py::swish", 812, 3, 5)
    assert faulty["findings"] == [
        {
            "symptom": "wrong-second-derivative",
            "signature": "act.py::swish|wrong-second-derivative|2|rev-rev|input 0|",
            "order": 2,
            "mode": "rev-rev",
            "where": "input 0",
            "got": "0.2",
            "want": "0.25 +- 3e-11",
            "explanation": "a saved value counts as a constant",
            "path": "corpus/act.py_swish/wrong-second-derivative-0123456789ab.json",
            "reliability": "3/3",
            "seconds_to_find": 0.412,
            "cases_to_find": 37,
        }
    ]
    assert clean["findings"] == []


def test_the_json_report_is_valid_json_before_the_campaign_ends(tmp_path):
    assert json.loads(report("json", tmp_path / "report.json", EVENTS[:3])) == {}


def test_an_unsaved_finding_has_a_null_path(tmp_path):
    unsaved = Finding("f", SEEN, None, 0, 0.0, 1)
    ending = CampaignFinished(Result(0, 1.0, (Tally("f", cases=1, findings=(unsaved,)),)))
    document = json.loads(report("json", tmp_path / "report.json", [ending]))
    assert document["targets"][0]["findings"][0]["path"] is None


def test_the_jsonl_report_has_an_event_a_line(tmp_path):
    lines = [json.loads(line) for line in report("jsonl", tmp_path / "events.jsonl").splitlines()]
    assert [line["event"] for line in lines] == [
        "campaign-started",
        "target-started",
        "progress",
        "finding-new",
        "finding-shrunk",
        "target-finished",
        "campaign-finished",
    ]
    assert lines[3]["target"] == "act.py::swish"
    assert lines[-1]["result"]["targets"][0]["cases"] == 812


def test_a_jsonl_report_can_be_read_while_it_is_written(tmp_path):
    made = open_report(f"jsonl:{tmp_path / 'events.jsonl'}")
    made.handle(EVENTS[0])
    assert json.loads((tmp_path / "events.jsonl").read_text())["seed"] == 7
    made.close()


# JUnit -----------------------------------------------------------------------------------------------


def test_the_junit_report_has_a_case_a_finding_and_a_clean_target(tmp_path):
    suites = ElementTree.fromstring(report("junit", tmp_path / "report.xml"))
    (suite,) = suites
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    faulty, clean = suite.findall("testcase")
    assert faulty.get("classname") == "act.py::swish"
    properties = {p.get("name"): p.get("value") for p in faulty.iter("property")}
    assert properties["signature"] == FINDING.signature
    assert "gradfuzz replay corpus/" in faulty.find("failure").text
    assert clean.find("failure") is None


def test_the_junit_report_tells_errors_from_untested_targets(tmp_path):
    tallies = (Tally("a", cases=3, rejected=3, reason="ValueError"), Tally("b", error="its process died"))
    suites = ElementTree.fromstring(report("junit", tmp_path / "r.xml", [CampaignFinished(Result(0, 1.0, tallies))]))
    assert [case[0].tag for case in suites.iter("testcase")] == ["skipped", "error"]


@pytest.mark.parametrize("text", ["\x00\x1b[31m", "\ud800", '<&">]]>', "\ufffe"])
def test_what_functions_raise_cannot_break_the_xml(tmp_path, text):
    bad = Finding("f", Seen(Symptom.BACKWARD_ERROR, "backward", text, text), None, 0, 0.0, 1)
    ending = CampaignFinished(Result(0, 1.0, (Tally("f", cases=1, findings=(bad,)),)))
    assert ElementTree.fromstring(report("junit", tmp_path / "report.xml", [ending])) is not None


# Opening ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["html:x.html", "json", "json:", ":x", ""])
def test_a_report_that_cannot_be_written_is_refused_before_the_campaign(spec):
    with pytest.raises(CampaignError, match=r"known are json, jsonl, junit|names no file; write json:PATH"):
        open_report(spec)


def test_a_report_on_a_folder_is_refused(tmp_path):
    with pytest.raises(CampaignError, match="cannot be written: is a folder"):
        open_report(f"json:{tmp_path}")


# People ----------------------------------------------------------------------------------------------


def test_a_finding_is_told_in_three_lines():
    assert heading(FINDING) == ("act.py::swish", "wrong-second-derivative (rev-rev, input 0)")
    assert list(details(FINDING)) == [
        "got 0.2, want 0.25 +- 3e-11 at input 0, element (): a saved value counts as a constant",
        "replay: gradfuzz replay corpus/act.py_swish/wrong-second-derivative-0123456789ab.json",
    ]


def test_flaky_and_unsaved_are_said():
    shaky = Finding("f", SEEN, None, 0, 0.0, 1, unsaved="corpus: Permission denied", reliability="1/3")
    assert list(details(shaky))[1:] == [
        "flaky: judged again, its case shows it 1/3 times",
        "not saved: corpus: Permission denied",
    ]


@pytest.mark.parametrize(
    ("tally", "text"),
    [
        (Tally("f", cases=10, rejected=9, reason="ValueError(n)"), "9 of 10 cases were rejected, most often by Value"),
        (Tally("f", cases=4, inconclusive=4, doubt="a kink"), "none of 4 cases was conclusive, most often: a kink"),
        (Tally("f"), "not tested, the campaign ended before its turn"),
        (Tally("f", error="its process died: SIGKILL"), "f: its process died: SIGKILL"),
        (Tally("f", cases=4, known=("a",)), "1 known signature seen and not reported"),
    ],
)
def test_what_was_not_tested_is_said(tally, text):
    (line,) = warnings(tally)
    assert text in line


def test_a_target_that_was_well_tested_gives_no_warning():
    assert list(warnings(CLEAN)) == []


def test_the_last_line_counts():
    assert closing(RESULT) == "1 finding in 1 of 2 targets; 1,812 cases in 4.1 s"
    assert closing(Result(0, 1.0, (CLEAN,), interrupted=True)) == "interrupted: no findings; 1,000 cases in 1.0 s"


def test_a_line_stays_a_line_and_steers_no_terminal():
    assert one_line("a\nb\x1b[31mc\t d") == "a b [31mc d"
    assert len(one_line("x" * 1000)) == 300


def test_results_go_to_standard_output_and_progress_to_standard_error(capsys):
    shown = TerminalReport(again="gradfuzz fuzz act.py --seed 7")
    for event in EVENTS:
        shown.handle(event)
    shown.close()
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "act.py::swish  wrong-second-derivative (rev-rev, input 0)",
        *(f"  {line}" for line in details(FINDING)),
        "1 finding in 1 of 2 targets; 1,812 cases in 4.1 s",
        "run again: gradfuzz fuzz act.py --seed 7",
    ]
    assert err.splitlines() == [
        "2 targets, 60 s, seed 7",
        "found: act.py::swish  wrong-second-derivative (rev-rev, input 0)",
    ]


def test_quiet_says_nothing_on_standard_error(capsys):
    shown = TerminalReport(again="gradfuzz fuzz act.py", quiet=True)
    for event in EVENTS:
        shown.handle(event)
    shown.close()
    assert capsys.readouterr().err == ""


def test_a_live_display_leaves_standard_output_alone(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = TerminalReport(again="gradfuzz fuzz act.py --seed 7")
    for event in EVENTS[:5]:
        shown.handle(event)
    drawn = capsys.readouterr()
    assert drawn.out == ""
    shown.close()


def test_brackets_in_an_address_are_no_markup(capsys):
    finding = Finding("a[b].py::f", Seen(Symptom.CRASH, "", "[red]x[/nope]", "a return"), None, 0, 0.0, 1)
    shown = TerminalReport(again="x")
    shown.handle(CampaignFinished(Result(0, 1.0, (Tally("a[b].py::f", cases=1, findings=(finding,)),))))
    assert "got [red]x[/nope], want a return" in capsys.readouterr().out


# The doctor ------------------------------------------------------------------------------------------


def test_the_doctor_finds_a_corpus_that_cannot_be_written(tmp_path):
    (tmp_path / "corpus").write_text("")
    items = {item.name: item for item in examine(tmp_path / "corpus")}
    assert not items["corpus"].healthy
    assert "is no folder; name another with --corpus" in items["corpus"].text
    assert items["torch"].healthy
