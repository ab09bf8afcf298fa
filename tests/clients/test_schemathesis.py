"""Schemathesis reads the OpenAPI document and tries what it says, with all of its checks."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from client_kit import Json, ServerUrl

LONG_VARIABLE = "INFINITY_CLIENT_LONG"
is_long = LONG_VARIABLE in os.environ
Record = Callable[[str, object], None]
CONFIG = Path(__file__).with_name("schemathesis.toml")
OWN_PATHS: Mapping[str, str] = {
    "reranker": "^(/|/invocations|/vertex|/info|/predict|.*/rerank|.*/score|.*/classify)$",
    "classifier": "^(/|/invocations|/vertex|/info|/predict|.*/classify)$",
    "token_classifier": "^(/|/invocations|/vertex|/info|/predict_tokens)$",
    "sparse": "^(/|/invocations|/vertex|/info|/embed_sparse)$",
    "late_interaction": "^(/|/invocations|/vertex|/info|/embed_all|.*/embeddings)$",
}
"""What servers of a kind answer with something else than an error."""


def run(url: str, folder: Path, *options: str) -> Json:
    """Run it and give its report, or fail with what it printed."""
    program, report = Path(sys.executable).with_name("schemathesis"), folder / "report.json"
    command: list[str | Path] = [program, "--config-file", CONFIG, "run"]
    command += [f"{url}/api-doc/openapi.json", "--checks", "all", "--seed", "1", "--no-color"]
    command += ["--continue-on-failure", "--generation-database", "none", "--warnings", "off"]
    command += ["--report", "json", "--report-json-path", report]
    result = subprocess.run(
        [*command, *options], cwd=folder, capture_output=True, text=True, timeout=1500, check=False
    )
    assert report.exists(), result.stdout[-2000:] + result.stderr[-2000:]
    sys.stdout.write(result.stdout)  # shown when a test fails
    return json.loads(report.read_text())


def check(report: Json, record: Record, *, at_least: int) -> None:
    """Every check of every generated request passed, and there were enough of them."""
    counts = report["test_cases"]
    record("cases", counts["generated"])
    assert report["failures"] == []
    assert report["errors"] == []
    assert (report["complete"], report["exit_code"], counts["without_checks"]) == (True, 0, 0)
    assert counts["generated"] >= at_least


def test_every_operation(server: ServerUrl, tmp_path: Path, record_property: Record) -> None:
    amount = ("--max-examples", "30") if is_long else ("--phases=fuzzing", "--max-examples", "8")
    found = run(server("embedding"), tmp_path, *amount)
    check(found, record_property, at_least=2000 if is_long else 150)


@pytest.mark.skipif(not is_long, reason="`make clients` runs it: it takes minutes")
@pytest.mark.parametrize("kind", OWN_PATHS)
def test_operations_of_a_kind(
    server: ServerUrl, tmp_path: Path, record_property: Record, kind: str
) -> None:
    amount = ("--phases=fuzzing", "--max-examples", "50")
    chosen = ("--include-path-regex", OWN_PATHS[kind])
    found = run(server(kind), tmp_path, *amount, *chosen)
    check(found, record_property, at_least=100)
