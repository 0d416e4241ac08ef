"""The JUnit report: what continuous integration shows, a test case a finding or clean target."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

from gradfuzz.campaign.event import CampaignFinished, Event
from gradfuzz.campaign.finding import Finding
from gradfuzz.campaign.result import Result, Tally
from gradfuzz.report.base import write_whole

# What XML 1.0 cannot hold, not even escaped.
_UNSPEAKABLE = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def _clean(text: str) -> str:
    return _UNSPEAKABLE.sub("?", text)


def _case(suite: ElementTree.Element, target: str, name: str, seconds: float) -> ElementTree.Element:
    attributes = {"classname": _clean(target), "name": _clean(name), "time": f"{seconds:.3f}"}
    return ElementTree.SubElement(suite, "testcase", attributes)


def _add_finding(suite: ElementTree.Element, finding: Finding) -> None:
    name = f"{finding.symptom.value} {' '.join(p for p in (finding.mode, finding.where) if p)}".strip()
    case = _case(suite, finding.target, name, finding.seconds_to_find)
    properties = ElementTree.SubElement(case, "properties")
    about = {
        "signature": finding.signature,
        "path": "" if finding.path is None else finding.path.as_posix(),
        "reliability": finding.reliability,
        "cases_to_find": str(finding.cases_to_find),
    }
    for key, value in about.items():
        ElementTree.SubElement(properties, "property", {"name": key, "value": _clean(value)})
    message = _clean(f"got {finding.got}, want {finding.want} at {finding.place}")
    failure = ElementTree.SubElement(case, "failure", {"type": finding.symptom.value, "message": message})
    replay = "" if finding.path is None else f"\nreplay: gradfuzz replay {finding.path.as_posix()}"
    failure.text = _clean(f"{finding}{replay}")


def _add_target(suite: ElementTree.Element, tally: Tally) -> None:
    for finding in tally.findings:
        _add_finding(suite, finding)
    if tally.error:
        case = _case(suite, tally.target, "search", tally.seconds)
        ElementTree.SubElement(case, "error", {"type": "error", "message": _clean(tally.error)})
    elif tally.accepted == 0:
        case = _case(suite, tally.target, "search", tally.seconds)
        why = f"no case was tested: {tally.reason or 'none was drawn'}"
        ElementTree.SubElement(case, "skipped", {"message": _clean(why)})
    elif not tally.findings:
        _case(suite, tally.target, "search", tally.seconds)


def result_to_xml(result: Result) -> str:
    """Give a result as a JUnit document."""
    suites = ElementTree.Element("testsuites", {"name": "gradfuzz"})
    suite = ElementTree.SubElement(suites, "testsuite", {"name": "gradfuzz", "time": f"{result.seconds:.3f}"})
    properties = ElementTree.SubElement(suite, "properties")
    ElementTree.SubElement(properties, "property", {"name": "seed", "value": str(result.seed)})
    for tally in result.tallies:
        _add_target(suite, tally)
    for attribute, path in (("tests", "testcase"), ("failures", "*/failure"), ("errors", "*/error")):
        for element in (suites, suite):
            element.set(attribute, str(len(suite.findall(path))))
    suite.set("skipped", str(len(suite.findall("*/skipped"))))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


class JunitReport:
    """Writes the document when the campaign is over."""

    def __init__(self, path: Path) -> None:
        """Fail now rather than after the campaign where the file cannot be written."""
        self._path = path
        write_whole(path, '<?xml version="1.0" encoding="utf-8"?>\n<testsuites name="gradfuzz" />\n')

    def handle(self, event: Event) -> None:
        """Write the document at the end."""
        if isinstance(event, CampaignFinished):
            write_whole(self._path, result_to_xml(event.result))

    def close(self) -> None:
        """Do nothing: the file is whole at any moment."""
