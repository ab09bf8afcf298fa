"""`make` says what a machine lacks, all at once, before it installs anything."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OTHER_PYTHON = """#!/bin/sh
[ "$1" = --version ] && echo "Python 3.9.1"
exit 1
"""


def _preflight(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / ".ci" / "preflight"],
        env={**os.environ, "PYTHON": sys.executable, **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def _write_program(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def test_names_the_python_it_will_use() -> None:
    result = _preflight()
    assert result.returncode == 0, result.stderr
    assert Path(result.stdout.strip()).samefile(sys.executable)


def test_lists_everything_that_is_missing_at_once(tmp_path: Path) -> None:
    result = _preflight(
        PYTHON=_write_program(tmp_path / "python3.9", OTHER_PYTHON), CXX="no-such-compiler"
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert "Python 3.9.1" in result.stderr
    assert "no-such-compiler is not on PATH" in result.stderr


def test_names_the_package_when_the_venv_module_is_missing(tmp_path: Path) -> None:
    only_version = '#!/bin/sh\ncase "$2" in *ensurepip*) exit 1;; esac\nexit 0\n'
    result = _preflight(PYTHON=_write_program(tmp_path / "python3.11", only_version))
    assert result.returncode == 2
    assert "python3-venv" in result.stderr


def test_notices_a_compiler_without_openmp(tmp_path: Path) -> None:
    refuses_openmp = '#!/bin/sh\n[ "$1" = -fopenmp ] && exit 1\nexec g++ "$@"\n'
    result = _preflight(CXX=_write_program(tmp_path / "g++-bare", refuses_openmp))
    assert result.returncode == 2
    assert "OpenMP" in result.stderr


def test_make_stops_before_it_makes_an_environment(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", ".ci"):
        (tmp_path / name).symlink_to(ROOT / name)
    result = subprocess.run(
        ["make", "demo"],
        cwd=tmp_path,
        env={**os.environ, "CXX": "no-such-compiler"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode != 0
    assert "no-such-compiler" in result.stderr
    assert not (tmp_path / ".venv").exists()
