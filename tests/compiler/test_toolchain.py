"""What a machine is told it lacks, with pretended compilers and packages."""

import re
import sys
from pathlib import Path

import pytest

from infinity_v3.compiler import toolchain
from infinity_v3.compiler.toolchain import (
    accepts_flags,
    find_cxx,
    find_obstacles,
    find_reference_obstacles,
    package_version,
)


def pretend_compiler(monkeypatch: pytest.MonkeyPatch, path: Path, body: str) -> str:
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    monkeypatch.setenv("CXX", str(path))
    return str(path)


def test_this_machine_can_compile() -> None:
    assert find_obstacles() == ()
    compiler = find_cxx()
    assert compiler is not None
    assert re.search(r"\d+\.\d+", compiler.version)


def test_flags_are_tried() -> None:
    compiler = find_cxx()
    assert compiler is not None
    assert accepts_flags(compiler.command, ("-march=x86-64-v3", "-O2"))
    assert not accepts_flags(compiler.command, ("-march=x86-64-v99",))
    assert not accepts_flags("/no/such/compiler", ())


def test_the_first_line_is_the_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    command = pretend_compiler(monkeypatch, tmp_path / "cxx", "echo ' mycc 9.1 '; echo more")
    compiler = find_cxx()
    assert compiler is not None
    assert (compiler.command, compiler.version) == (command, "mycc 9.1")


def test_a_compiler_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend_compiler(monkeypatch, tmp_path / "cxx", "exit 1")
    (obstacle,) = find_obstacles()
    assert "no C++ compiler" in obstacle
    assert "apt-get install g++" in obstacle


def test_a_compiler_without_openmp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    body = 'case "$1" in --version) echo mycc 9;; *) echo omp.h: not found >&2; exit 1;; esac'
    command = pretend_compiler(monkeypatch, tmp_path / "cxx", body)
    (obstacle,) = find_obstacles()
    assert obstacle.startswith(f"{command} cannot compile OpenMP (omp.h")


@pytest.mark.parametrize("version", ["2.10.1", "2.14.0+cpu", "3.1"])
def test_a_torch_that_was_not_tried(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr(toolchain, "package_version", lambda _: version)
    assert find_reference_obstacles() == (
        f"torch {version} is not supported; expected torch 2.11 to 2.13",
    )


def test_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "package_version", lambda _: None)
    assert find_reference_obstacles() == ("torch is not installed; expected torch 2.11 to 2.13",)


def test_a_missing_extra_lists_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "EXTRA_MODULES", ("json", "no_such_a", "no_such_b"))
    (obstacle,) = find_reference_obstacles()
    assert "(no_such_a, no_such_b)" in obstacle
    assert obstacle.endswith("pip install 'infinity-v3[compile]'")


def test_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    others = tuple(minor for minor in toolchain.PYTHON_MINORS if minor != running)
    monkeypatch.setattr(toolchain, "PYTHON_MINORS", others)
    (obstacle,) = find_reference_obstacles()
    assert obstacle.startswith(f"Python {running} is not supported; use Python 3.1")


def test_an_unknown_package_has_no_version() -> None:
    assert package_version("no-such-package-at-all") is None


def test_the_supported_versions_are_those_of_the_package() -> None:
    project = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    torch = re.search(r'"torch>=2\.(\d+),<2\.(\d+)"', project)
    python = re.search(r'requires-python = ">=3\.(\d+),<3\.(\d+)"', project)
    assert torch is not None
    assert python is not None
    torch_minors = range(int(torch[1]), int(torch[2]))
    python_minors = range(int(python[1]), int(python[2]))
    assert tuple(f"2.{minor}" for minor in torch_minors) == toolchain.TORCH_MINORS
    assert tuple(f"3.{minor}" for minor in python_minors) == toolchain.PYTHON_MINORS
