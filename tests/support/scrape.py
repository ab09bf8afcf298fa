"""Reads `/metrics` through the parser of the Prometheus client library."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

Counts = Mapping[str, float]
"""`name{label="value"}` with labels in order of their names -> value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric: its type, label names (without `le`) and bucket edges."""

    kind: str
    labels: frozenset[str]
    edges: tuple[float, ...]


def families(text: str) -> Mapping[str, Family]:
    """Every metric of the text that has a sample."""
    found: dict[str, Family] = {}
    for name, family in _parsed(text):
        labels = {label for sample in family.samples for label in sample.labels}
        edges = {float(s.labels["le"]) for s in family.samples if "le" in s.labels}
        assert name not in found, f"{name} comes twice"
        found[name] = Family(
            kind=family.type, labels=frozenset(labels - {"le"}), edges=tuple(sorted(edges))
        )
    return found


def counts(text: str) -> Counts:
    """Counters, and of histograms the number of observations."""
    found: dict[str, float] = {}
    for name, family in _parsed(text):
        for sample in family.samples:
            if family.type == "counter":
                found[shown(name, sample.labels)] = sample.value
            elif family.type == "histogram" and sample.name == f"{name}_count":
                found[shown(sample.name, sample.labels)] = sample.value
    return found


def gauges(text: str) -> Counts:
    """Gauges."""
    return {
        shown(sample.name, sample.labels): sample.value
        for _, family in _parsed(text)
        if family.type == "gauge"
        for sample in family.samples
    }


def _parsed(text: str) -> Iterator[tuple[str, Metric]]:
    """Metrics under the names that are written: the parser takes `_total` away."""
    written = set(re.findall(r"^# TYPE (\S+) ", text, re.MULTILINE))
    for family in text_string_to_metric_families(text):
        name = family.name if family.name in written else f"{family.name}_total"
        assert name in written, f"{family.name} has no type"
        yield name, family


def increases(before: Counts, after: Counts) -> Counts:
    """What grew, and by how much; nothing ever shrinks or goes away."""
    assert set(before) <= set(after)
    grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
    assert all(value >= 0 for value in grown.values())
    return {name: value for name, value in grown.items() if value}


def shown(name: str, labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{label}="{value}"' for label, value in sorted(labels.items()))
    return f"{name}{{{inner}}}" if inner else name
