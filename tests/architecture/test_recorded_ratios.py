"""The guard against slower engines: what it compares with, and when it speaks up."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

BENCH = Path(__file__).resolve().parents[1] / "bench"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    yield importlib.import_module("quick")
    for name in set(sys.modules) - before:
        if name in ("quick", "engine", "machine", "workloads"):
            del sys.modules[name]


def test_only_a_large_fall_is_told(quick: object) -> None:
    recorded = {"ours": {"1x32": 2.0, "8x512": 1.0}}
    find = quick.find_fallen  # type: ignore[attr-defined]  # a script, imported by its path
    assert find({"ours": {"1x32": 1.71, "8x512": 3.0}}, recorded) == []
    (sentence,) = find({"ours": {"1x32": 1.69, "8x512": 1.0}}, recorded)
    assert sentence == "ours 1x32: 1.69 times the reference, recorded was 2.00"
    assert find({"ours": {"1x32": 0.1}, "other": {"1x32": 0.1}}, {}) == []


def test_what_is_recorded_is_whole() -> None:
    machines = json.loads((BENCH / "recorded_ratios.json").read_text())
    assert machines
    for engines in machines.values():
        for row in engines.values():
            assert len(row) == 7
            assert min(row.values()) > 0.0
