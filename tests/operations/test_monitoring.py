"""Dashboard and alerts name what the server really shows, and the page explains all of it."""

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # its stubs are a package of their own
from prometheus_client.parser import text_string_to_metric_families

from promql import LabelValues, complaints, names_of
from server_process import ServerProcess

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "operations"
PAGE = (FOLDER / "monitoring.md").read_text(encoding="utf-8")
DASHBOARD: Any = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
RULES: Any = yaml.safe_load((FOLDER / "alerts.yaml").read_text(encoding="utf-8"))
ALERTS: list[Any] = [rule for group in RULES["groups"] for rule in group["rules"]]
SCRAPER = frozenset({"job", "instance"})
ROWS = ["Traffic", "Latency", "Queue", "Batching", "Errors", "Capacity", "Artifacts"]


@pytest.fixture(scope="module")
def metrics_text(minilm_server: ServerProcess) -> str:
    assert minilm_server.post("/embed", {"inputs": "a"}).status == 200
    return minilm_server.get("/metrics").body.decode()


@pytest.fixture(scope="module")
def known(metrics_text: str) -> LabelValues:
    """Every sample's name with its labels and their values."""
    found: dict[str, dict[str, set[str]]] = {}
    written = set(re.findall(r"^([a-z_]+)", metrics_text, re.MULTILINE))
    for family in text_string_to_metric_families(metrics_text):
        for sample in family.samples:
            name = sample.name if sample.name in written else sample.name.removesuffix("_total")
            labels = found.setdefault(name, {})
            for label, value in sample.labels.items():
                labels.setdefault(label, set()).add(value)
    return {
        name: {label: frozenset(values) for label, values in labels.items()}
        for name, labels in found.items()
    }


def panels() -> list[Any]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def panel_expressions() -> Iterator[tuple[str, str]]:
    for panel in panels():
        for target in panel["targets"]:
            yield f"{panel['title']} {target['refId']}", target["expr"]


def expressions() -> dict[str, str]:
    found = dict(panel_expressions())
    assert len(found) == len(list(panel_expressions()))
    return found | {alert["alert"]: alert["expr"] for alert in ALERTS}


@pytest.mark.parametrize("name", expressions())
def test_expressions_name_what_the_server_shows(name: str, known: LabelValues) -> None:
    expression = expressions()[name]
    assert names_of(expression).selectors
    assert complaints(expression, known, SCRAPER) == []


def test_variables_name_what_the_server_shows(known: LabelValues) -> None:
    queries = {
        variable["name"]: variable["query"]["query"]
        for variable in DASHBOARD["templating"]["list"]
        if variable["type"] == "query"
    }
    assert set(queries) == {"instance", "model"}
    for query in queries.values():
        found = re.fullmatch(r"label_values\((\w+), (\w+)\)", query)
        assert found is not None
        assert found[2] in {*known[found[1]], *SCRAPER}


def test_every_metric_of_the_server_is_drawn(metrics_text: str) -> None:
    families = set(re.findall(r"^# TYPE (\S+)", metrics_text, re.MULTILINE))
    drawn = {
        re.sub(r"_(bucket|sum|count)$", "", selector.name)
        for _, expression in panel_expressions()
        for selector in names_of(expression).selectors
    }
    drawn |= {selector.name for _, e in panel_expressions() for selector in names_of(e).selectors}
    missing = {name for name in families - drawn if not re.match("te_(embed|predict)_", name)}
    assert missing == {"te_request_success"}  # the rest of count and failure, which are drawn


def test_dashboard_can_be_imported() -> None:
    assert DASHBOARD["schemaVersion"] >= 36
    assert DASHBOARD["id"] is None
    (source,) = (v for v in DASHBOARD["templating"]["list"] if v["type"] == "datasource")
    assert source["query"] == "prometheus"
    uid = {"type": "prometheus", "uid": f"${{{source['name']}}}"}
    for panel in panels():
        assert panel["datasource"] == uid
        assert all(target["datasource"] == uid for target in panel["targets"])
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    rows = [panel["title"] for panel in DASHBOARD["panels"] if panel["type"] == "row"]
    assert rows == ROWS


def test_no_panel_covers_another() -> None:
    cells: Counter[tuple[int, int]] = Counter()
    for panel in DASHBOARD["panels"]:
        place: Mapping[str, int] = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            cells.update((x, y) for y in range(place["y"], place["y"] + place["h"]))
    assert max(cells.values()) == 1


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: str(alert["alert"]))
def test_alerts_are_complete(alert: Any) -> None:  # noqa: ANN401  # parsed YAML
    assert set(alert) == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"\d+[mh]", alert["for"])
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["annotations"]["summary"]
    assert alert["annotations"]["description"]
    anchor = alert["alert"].lower()
    assert alert["annotations"]["runbook_url"] == f"docs/operations/monitoring.md#{anchor}"
    assert f"\n### {alert['alert']}\n" in PAGE
    assert f"| [{alert['alert']}](#{anchor}) |" in PAGE


def test_the_page_has_no_other_alert() -> None:
    names = {alert["alert"] for alert in ALERTS}
    assert set(re.findall(r"^### (Infinity\w+)$", PAGE, re.MULTILINE)) == names
    severities = dict(re.findall(r"^\| \[(\w+)\].* \| (\w+) \|$", PAGE, re.MULTILINE))
    assert severities == {alert["alert"]: alert["labels"]["severity"] for alert in ALERTS}


def promtool() -> str:
    beside = Path(sys.executable).with_name("promtool")
    found = str(beside) if beside.exists() else shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not on PATH; Debian: apt-get install prometheus")
    return found


def test_promtool_accepts_the_alerts() -> None:
    done = subprocess.run(
        [promtool(), "check", "rules", str(FOLDER / "alerts.yaml")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(ALERTS)} rules found" in done.stdout


def test_promtool_accepts_the_expressions_of_the_dashboard(tmp_path: Path) -> None:
    rules = [
        {
            "record": f"panel:expression_{index}",
            "expr": expression.replace("$__rate_interval", "5m"),
        }
        for index, (_, expression) in enumerate(panel_expressions())
    ]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    done = subprocess.run(
        [promtool(), "check", "rules", "--lint=none", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


ALERT_CASES = """
rule_files: [{rules}]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      - {{series: 'infinity_ready{{instance="a"}}', values: '1x10 0x30'}}
      - {{series: 'te_request_count{{instance="a",method="single"}}', values: '0+100x40'}}
      - {{series: 'te_request_failure{{instance="a",err="inference"}}', values: '0+10x40'}}
      - series: infinity_rejected_total{{instance="a",model="m",reason="tokens_limit"}}
        values: '0+5x40'
      - {{series: 'infinity_queue_tokens{{instance="a",model="m"}}', values: '90x40'}}
      - {{series: 'infinity_queue_tokens_limit{{instance="a",model="m"}}', values: '100x40'}}
      - {{series: 'infinity_channel_behind{{instance="a",model="m"}}', values: '1x40'}}
      - {{series: 'infinity_channel_behind{{instance="a",model="n"}}', values: '0x9 1x5 0x26'}}
    alert_rule_test:
      - {{eval_time: 5m, alertname: InfinityNotReady, exp_alerts: []}}
      - eval_time: 20m
        alertname: InfinityNotReady
        exp_alerts: [{{exp_labels: {{severity: critical, instance: a}}}}]
      - eval_time: 30m
        alertname: InfinityEngineFailures
        exp_alerts: [{{exp_labels: {{severity: critical, instance: a}}}}]
      - eval_time: 30m
        alertname: InfinityErrorRatio
        exp_alerts: [{{exp_labels: {{severity: warning, instance: a}}}}]
      - eval_time: 30m
        alertname: InfinityOverload
        exp_alerts: [{{exp_labels: {{severity: warning, instance: a}}}}]
      - eval_time: 30m
        alertname: InfinityQueueSaturated
        exp_alerts: [{{exp_labels: {{severity: warning, instance: a, model: m}}}}]
      - eval_time: 18m
        alertname: InfinityChannelBehind
        exp_alerts: [{{exp_labels: {{severity: warning, instance: a, model: m}}}}]
      - {{eval_time: 30m, alertname: InfinityAbsent, exp_alerts: []}}
"""


def test_alerts_fire(tmp_path: Path) -> None:
    # Annotations are stripped: only when alerts fire is of interest.
    bare = [{**alert, "annotations": {}} for alert in ALERTS]
    rules, cases = tmp_path / "rules.yaml", tmp_path / "cases.yaml"
    rules.write_text(yaml.safe_dump({"groups": [{"name": "infinity", "rules": bare}]}))
    cases.write_text(ALERT_CASES.format(rules=rules))
    done = subprocess.run(
        [promtool(), "test", "rules", str(cases)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_complaints_are_made() -> None:
    known: LabelValues = {"requests": {"err": frozenset({"a", "b"})}}
    added = frozenset({"job"})
    assert complaints('sum by (job) (rate(requests{err=~"a|b"}[5m])) > 0.5', known, added) == []
    assert complaints("rate(request[5m])", known, added) == ["no metric request"]
    assert complaints('requests{error="a"}', known, added) == ["requests has no label error"]
    assert complaints('requests{err=~"a|c"}', known, added) == ["requests has no err='c'"]
    assert complaints("sum by (le) (requests)", known, added) == ["no label le"]
