"""What became of the clients: read from their test reports, written as a page.

Knows nothing of how they were run.
"""

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from client_table import Client

HEADER = """# Client kit

Published clients, unmodified, against real servers on loopback: all-MiniLM-L6-v2 and tiny models of
every other kind, on the CPU. Every value is compared with what a direct call answers; of load
generators, every request has to be counted as answered.

`make clients` writes this page; the versions are pinned in `tests/clients/requirements-*.txt`.
"""
_COLUMNS = (
    "| client | version | tests | result | seconds | what was run |\n|---|---|---|---|---|---|"
)
_MESSAGE_LIMIT = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One client's run.

    Attributes:
        client: its name.
        versions: by distribution.
        num_tests: that ran.
        failures: a line per test that failed; an installation that failed is one of them.
        seconds: all tests together.
        cases: generated requests, where a client generates them.
    """

    client: str
    versions: Mapping[str, str]
    num_tests: int
    failures: Sequence[str]
    seconds: float
    cases: int = 0

    @property
    def has_passed(self) -> bool:
        return not self.failures and self.num_tests > 0


def read_outcome(client: Client, versions: Mapping[str, str], junit: Path) -> Outcome:
    """Read pytest's report of one client."""
    cases = ElementTree.parse(junit).getroot().iter("testcase")
    ran = [case for case in cases if case.find("skipped") is None]
    return Outcome(
        client=client.name,
        versions=versions,
        num_tests=len(ran),
        failures=[line for case in ran if (line := _failure(case))],
        seconds=round(sum(float(case.get("time", 0)) for case in ran), 1),
        cases=sum(_property(case, "cases") for case in ran),
    )


def not_run(client: Client, reason: str) -> Outcome:
    """The outcome of a client that could not be installed or started."""
    return Outcome(
        client=client.name, versions={}, num_tests=0, failures=[_line(reason)], seconds=0.0
    )


def render(outcomes: Sequence[Outcome], clients: Sequence[Client], origin: str) -> str:
    """The page.

    Args:
        outcomes: in the order of the table.
        clients: of the same names.
        origin: commit, date and host, as a sentence.
    """
    by_name = {client.name: client for client in clients}
    rows = [_row(outcome, by_name[outcome.client]) for outcome in outcomes]
    passed = sum(outcome.has_passed for outcome in outcomes)
    cases = sum(outcome.cases for outcome in outcomes)
    summary = f"{passed} of {len(outcomes)} pass; {cases} generated requests."
    parts = [HEADER, f"{origin} {summary}\n", "\n".join([_COLUMNS, *rows]) + "\n"]
    failures = [f"- {one.client}: {line}" for one in outcomes for line in one.failures]
    if failures:
        parts.append("## Failures\n\n" + "\n".join(failures) + "\n")
    gaps = [f"- {one.name}: {gap}" for one in clients for gap in one.gaps]
    parts.append("## What these clients cannot do here\n\n" + "\n".join(gaps) + "\n")
    return "\n".join(parts)


def as_json(outcomes: Sequence[Outcome], origin: str) -> str:
    """The same facts for programs."""
    rows = [{**asdict(one), "has_passed": one.has_passed} for one in outcomes]
    return json.dumps({"origin": origin, "clients": rows}, indent=2)


def _row(outcome: Outcome, client: Client) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in outcome.versions.items())
    tests = f"{outcome.num_tests}" + (f" ({outcome.cases} cases)" if outcome.cases else "")
    result = "passes" if outcome.has_passed else "FAILS"
    cells = (client.name, versions, tests, result, f"{outcome.seconds:.1f}", client.asked)
    return f"| {' | '.join(cells)} |"


def _failure(case: ElementTree.Element) -> str:
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            return f"{case.get('name')}: {_line(found.get('message', ''))}"
    return ""


def _property(case: ElementTree.Element, name: str) -> int:
    found = case.find(f"properties/property[@name='{name}']")
    return 0 if found is None else int(found.get("value", 0))


def _line(text: str) -> str:
    return " ".join(text.split())[:_MESSAGE_LIMIT]
