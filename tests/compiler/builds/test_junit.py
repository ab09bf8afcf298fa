"""JUnit XML, held against the structure of the schema that CI servers read."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import datetime, timezone

from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.registry.records import GateFigure
from infinity_v3.compiler.builds.junit import junit_xml, xml_text
from infinity_v3.compiler.builds.outcome import Outcome, Result

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
BUILT = Outcome(
    name="one",
    version="1.0",
    result=Result.BUILT,
    build_key="ab" * 32,
    artifact_id="sha256:" + "cd" * 32,
    num_bytes=1234,
    duration_s=2.5,
    worst="pooled.max_abs 3e-06 of cpu",
    push_to="staging",
)
PASSED = GateFigure(
    gate="max-abs", subject="cpu", current=None, candidate="3e-06", bound="<= 1e-05", passed=True
)
NOT_PASSED = replace(PASSED, gate="min-cosine", candidate="0.9", bound=">= 0.99", passed=False)
REFUSED = Outcome(
    name="two",
    version="2",
    result=Result.REFUSED,
    exit_code=3,
    message='parity <failed> & "worse"',
    log=("at 1 s  build", "\x1b[31merror: parity\x1b[0m ]]>"),
)
FAILED = Outcome(name="three", version="3", result=Result.FAILED, exit_code=1, message="disk full")
GATED = replace(
    BUILT,
    name="four",
    result=Result.REFUSED,
    exit_code=4,
    message="min-cosine of cpu: ...",
    gates=(PASSED, NOT_PASSED),
)
SKIPPED = replace(BUILT, name="five", result=Result.SKIPPED, message="the registry has it")
LEFT_OUT = Outcome(name="six", version="{key}", result=Result.LEFT_OUT, message="not begun")
ALL = (BUILT, REFUSED, FAILED, GATED, SKIPPED, LEFT_OUT)

SUITE_ATTRIBUTES = {
    *("name", "timestamp", "hostname", "tests", "failures", "errors", "skipped", "time"),
    *("id", "package"),
}
SUITE_CHILDREN = ("properties", "testcase", "system-out", "system-err")
VERDICTS = {"skipped", "error", "failure"}


def read(outcomes: tuple[Outcome, ...]) -> ET.Element:
    root = ET.fromstring(junit_xml(outcomes, NOW))
    check_schema(root)
    return root


def check_schema(root: ET.Element) -> None:
    """The rules of JUnit.xsd (Apache Ant's format) that a document of ours could break."""
    assert root.tag == "testsuites"
    assert [suite.tag for suite in root] == ["testsuite"] * len(root)
    for number, suite in enumerate(root):
        assert set(suite.attrib) == SUITE_ATTRIBUTES
        assert suite.attrib["id"] == str(number)
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d", suite.attrib["timestamp"])
        assert suite.attrib["hostname"]
        order = [SUITE_CHILDREN.index(child.tag) for child in suite]
        assert order == sorted(order)
        assert {"properties", "system-out", "system-err"} <= {child.tag for child in suite}
        for one in suite.iterfind("properties/property"):
            assert set(one.attrib) == {"name", "value"}
            assert one.attrib["name"]
        cases = suite.findall("testcase")
        for case in cases:
            check_case(case)
        for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped",) * 2):
            assert suite.attrib[attribute] == str(len(suite.findall(f"testcase/{tag}")))
        assert suite.attrib["tests"] == str(len(cases))
    for attribute in ("tests", "failures", "errors", "skipped"):
        total = sum(int(suite.attrib[attribute]) for suite in root)
        assert root.attrib[attribute] == str(total)


def check_case(case: ET.Element) -> None:
    assert set(case.attrib) == {"classname", "name", "time"}
    assert float(case.attrib["time"]) >= 0
    assert len(case) <= 1
    for verdict in case:
        assert verdict.tag in VERDICTS
        needed = {"message"} if verdict.tag == "skipped" else {"message", "type"}
        assert set(verdict.attrib) == needed


def test_a_case_for_every_model_and_gate() -> None:
    root = read(ALL)
    cases = [
        (suite.attrib["name"], case.attrib["name"], [child.tag for child in case])
        for suite in root
        for case in suite.iterfind("testcase")
    ]
    assert cases == [
        ("one==1.0", "build", []),
        ("two==2", "build", ["failure"]),
        ("three==3", "build", ["error"]),
        ("four==1.0", "build", []),
        ("four==1.0", "max-abs cpu", []),
        ("four==1.0", "min-cosine cpu", ["failure"]),
        ("five==1.0", "build", ["skipped"]),
        ("six=={key}", "build", ["skipped"]),
    ]


def test_properties_and_times() -> None:
    suite = read((BUILT,))[0]
    found = {one.attrib["name"]: one.attrib["value"] for one in suite.iterfind("*/property")}
    assert found == {
        "name": "one",
        "version": "1.0",
        "result": "built",
        "artifact-id": BUILT.artifact_id,
        "build-key": BUILT.build_key,
        "bytes": "1234",
        "worst-parity-figure": BUILT.worst,
        "push-to": "staging",
    }
    assert (suite.attrib["time"], suite.attrib["timestamp"]) == ("2.500", "2026-01-02T03:04:05")


def test_messages_are_escaped_and_kept() -> None:
    suite = read((REFUSED,))[0]
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.attrib == {"message": 'parity <failed> & "worse"', "type": "refused"}
    log = suite.findtext("system-err")
    assert log == "at 1 s  build\n\\x1b[31merror: parity\\x1b[0m ]]>"
    assert failure.text == f"{REFUSED.message}\n{log}"


def test_a_gate_that_failed_says_what_it_found() -> None:
    failure = read((GATED,))[0].find("testcase/failure")
    assert failure is not None
    sentence = "min-cosine of cpu: expected >= 0.99, found 0.9"
    assert failure.attrib == {"message": sentence, "type": "min-cosine"}


def test_no_models_at_all() -> None:
    assert read(()).attrib["tests"] == "0"


@given(st.text(st.characters(), max_size=30), st.text(st.characters(), max_size=30))
def test_no_text_breaks_the_document(message: str, line: str) -> None:
    outcome = replace(REFUSED, message=message, log=(line,))
    suite = read((outcome,))[0]
    failure = suite.find("testcase/failure")
    assert failure is not None
    # A parser makes one line end of every kind, and spaces of those in attributes, unless escaped.
    assert failure.attrib["message"] == xml_text(message)
    assert (suite.findtext("system-err") or "").split() == xml_text(line).split()


def test_lone_surrogates() -> None:
    assert xml_text("a\udcffb\x00") == "a\\udcffb\\x00"
