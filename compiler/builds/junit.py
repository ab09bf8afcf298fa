"""A run as JUnit XML, as GitHub actions, GitLab and Jenkins read it.

One suite per model: its build, and each of its gates. Does no I/O.
"""

import platform
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.builds.job import gate_sentence
from infinity_v3.compiler.builds.outcome import Outcome, Result

SUITES_NAME = "infinity-compile build"
BUILD_CASE = "build"
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What XML 1.0 cannot hold, not even escaped."""
_GATE_FAILED = 4
_REFUSED = 3


def junit_xml(outcomes: Sequence[Outcome], now: datetime | None = None) -> bytes:
    """Return the document.

    Args:
        outcomes: in the order of the build file.
        now: when the run began; None = the current time.
    """
    began = (now or datetime.now(timezone.utc)).astimezone(timezone.utc)
    suites = [_suite(number, outcome, began) for number, outcome in enumerate(outcomes)]
    root = ET.Element("testsuites", {"name": SUITES_NAME, **_totals(suites)})
    root.extend(suites)
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def xml_text(text: str) -> str:
    """Return a text in which what XML cannot hold is written as Python escapes it."""
    return _NOT_XML.sub(lambda found: ascii(found[0])[1:-1], text)


def _suite(number: int, outcome: Outcome, began: datetime) -> ET.Element:
    cases = [_build_case(outcome), *_gate_cases(outcome)]
    suite = ET.Element(
        "testsuite",
        {
            "id": str(number),
            "package": "models",
            "name": xml_text(outcome.title),
            "hostname": platform.node() or "localhost",
            "timestamp": began.strftime("%Y-%m-%dT%H:%M:%S"),
            **_counts(cases, outcome.duration_s),
        },
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in _properties(outcome):
        ET.SubElement(properties, "property", {"name": name, "value": xml_text(value)})
    suite.extend(cases)
    ET.SubElement(suite, "system-out")
    log = ET.SubElement(suite, "system-err")
    log.text = xml_text("\n".join(outcome.log))
    return suite


def _properties(outcome: Outcome) -> Iterator[tuple[str, str]]:
    yield "name", outcome.name
    yield "version", outcome.version
    yield "result", outcome.result.value
    optional = {
        "artifact-id": outcome.artifact_id,
        "build-key": outcome.build_key,
        "bytes": None if outcome.num_bytes is None else str(outcome.num_bytes),
        "worst-parity-figure": outcome.worst,
        "push-to": outcome.push_to,
    }
    yield from ((name, value) for name, value in optional.items() if value is not None)


def _build_case(outcome: Outcome) -> ET.Element:
    case = _case(outcome, BUILD_CASE, outcome.duration_s)
    if outcome.result in (Result.SKIPPED, Result.LEFT_OUT):
        ET.SubElement(case, "skipped", {"message": xml_text(outcome.message)})
    elif outcome.is_bad and outcome.exit_code != _GATE_FAILED:
        # What is refused is a finding, what broke is an error.
        kind = "failure" if outcome.exit_code == _REFUSED else "error"
        problem = ET.SubElement(
            case, kind, {"message": xml_text(outcome.message), "type": outcome.result.value}
        )
        problem.text = xml_text("\n".join((outcome.message, *outcome.log)))
    return case


def _gate_cases(outcome: Outcome) -> Iterator[ET.Element]:
    for figure in outcome.gates:
        case = _case(outcome, f"{figure.gate} {figure.subject}", 0.0)
        if not figure.passed:
            case.append(_gate_failure(figure))
        yield case


def _gate_failure(figure: GateFigure) -> ET.Element:
    sentence = xml_text(gate_sentence(figure))
    failure = ET.Element("failure", {"message": sentence, "type": figure.gate})
    failure.text = sentence
    return failure


def _case(outcome: Outcome, name: str, duration_s: float) -> ET.Element:
    return ET.Element(
        "testcase",
        {
            "classname": xml_text(outcome.title),
            "name": xml_text(name),
            "time": f"{duration_s:.3f}",
        },
    )


def _counts(cases: Sequence[ET.Element], duration_s: float) -> dict[str, str]:
    def count(kind: str) -> str:
        return str(sum(case.find(kind) is not None for case in cases))

    return {
        "tests": str(len(cases)),
        "failures": count("failure"),
        "errors": count("error"),
        "skipped": count("skipped"),
        "time": f"{duration_s:.3f}",
    }


def _totals(suites: Sequence[ET.Element]) -> dict[str, str]:
    totals = {
        name: str(sum(int(suite.attrib[name]) for suite in suites))
        for name in ("tests", "failures", "errors", "skipped")
    }
    return {**totals, "time": f"{sum(float(suite.attrib['time']) for suite in suites):.3f}"}
