"""What is written down about tools and machine, against what the tools say of themselves."""

from datetime import datetime, timedelta, timezone
from importlib import metadata
from pathlib import Path

import pytest

from infinity_v3.artifacts.typed_json import Location, canonical_bytes
from infinity_v3.compiler import provenance
from infinity_v3.compiler.progress import StageTime
from infinity_v3.compiler.provenance import build_record, collect_provenance, host_facts


def test_versions_are_those_installed() -> None:
    import torch
    import transformers

    found = collect_provenance(kernel_abi="7", flags=["-O3", "-march=x86-64-v3"])
    assert found.torch == torch.__version__
    assert found.transformers == transformers.__version__
    assert found.infinity_v3 == metadata.version("infinity-v3")
    assert (found.kernel_abi, found.flags) == ("7", ("-O3", "-march=x86-64-v3"))
    assert found.tensorrt is None


def test_the_compiler_is_the_first_line_of_its_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    command = tmp_path / "cxx"
    command.write_text("#!/bin/sh\necho mycc 9.1\necho more\n")
    command.chmod(0o755)
    monkeypatch.setenv("CXX", str(command))
    assert collect_provenance(kernel_abi="1", flags=()).compiler == "mycc 9.1"
    monkeypatch.setenv("CXX", str(tmp_path / "absent"))
    assert collect_provenance(kernel_abi="1", flags=()).compiler == "unknown"


def test_nothing_of_this_build_is_in_the_provenance() -> None:
    first = collect_provenance(kernel_abi="1", flags=())
    assert first == collect_provenance(kernel_abi="1", flags=())


def test_the_host(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(
        "processor\t: 0\nmodel name\t: Fast CPU: X\n\nprocessor\t: 1\nmodel name\t: Other\n"
    )
    monkeypatch.setattr(provenance, "CPUINFO", cpuinfo)
    assert host_facts().cpu_model == "Fast CPU: X"
    cpuinfo.write_text("")
    assert host_facts().cpu_model == "unknown"
    cpuinfo.unlink()
    assert host_facts().cpu_model == "unknown"
    assert host_facts().num_cpus >= 1


def test_the_build_record_is_plain_json() -> None:
    now = datetime(2025, 1, 2, 5, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    times = (StageTime(name="export", depth=0, duration_s=1.23456),)
    record = build_record(times=times, labels={"b": "2", "a": "1"}, warnings=["w"], now=now)
    assert record["built_at"] == "2025-01-02T03:04:05+00:00"
    assert record["times"] == [{"stage": "export", "depth": 0, "seconds": 1.235}]
    assert list(record["labels"].items()) == [("a", "1"), ("b", "2")]  # type: ignore[attr-defined]
    assert record["warnings"] == ["w"]
    assert canonical_bytes(record, Location("build.json")).endswith(b"\n")
