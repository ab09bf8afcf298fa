"""The wheel holds every module and data file; its programs start without the source tree."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from compiled import CompiledArtifacts

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("artifacts", "compiler", "model_specs", "runtime", "server")
IGNORED_SUFFIXES = {".pyc"}


@pytest.fixture(scope="session")
def wheel_tree(compiled_artifact: CompiledArtifacts) -> Path:
    """The unpacked wheel, as it would lie in site-packages."""
    return compiled_artifact("wheel", _build_and_unpack)


def _build_and_unpack(path: Path) -> None:
    work = path.with_name("wheel-build")
    work.mkdir()
    _copy_sources(work / "source")
    command = [
        *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"),
        *("--disable-pip-version-check", "--wheel-dir", str(work), str(work / "source")),
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert result.returncode == 0, result.stderr
    (wheel,) = work.glob("infinity_v3-*.whl")
    zipfile.ZipFile(wheel).extractall(path)


def _copy_sources(target: Path) -> None:
    # A build in the checkout leaves build/lib, whose stale modules end up in the next wheel.
    target.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        (target / name).write_bytes((ROOT / name).read_bytes())
    for path in _source_files():
        copy = target / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())


def _source_files() -> list[Path]:
    return [
        path
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix not in IGNORED_SUFFIXES
    ]


def test_wheel_holds_every_module_and_data_file(wheel_tree: Path) -> None:
    package = wheel_tree / "infinity_v3"
    packed = {str(path.relative_to(package)) for path in package.rglob("*") if path.is_file()}
    assert packed == {str(path.relative_to(ROOT)) for path in _source_files()}


def test_wheel_puts_nothing_else_into_site_packages(wheel_tree: Path) -> None:
    names = {path.name for path in wheel_tree.iterdir() if not path.name.endswith(".dist-info")}
    assert names == {"infinity_v3"}


def test_wheel_carries_the_licence(wheel_tree: Path) -> None:
    (licence,) = wheel_tree.glob("*.dist-info/licenses/LICENSE")
    assert "Apache License" in licence.read_text()


@pytest.mark.parametrize(
    ("module", "options"),
    [
        ("infinity_v3.server.cli", ["--help"]),
        ("infinity_v3.server.cli", ["--version"]),
        ("infinity_v3.compiler.cli", ["--help"]),
    ],
)
def test_programs_of_the_wheel_start(wheel_tree: Path, module: str, options: list[str]) -> None:
    result = _run_from_wheel(wheel_tree, module, options)
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def _run_from_wheel(
    wheel_tree: Path, module: str, options: list[str]
) -> subprocess.CompletedProcess[str]:
    """Run a program's main() with the wheel's modules and this environment's dependencies.

    `-S` skips the editable install's import hook: only the unpacked wheel provides infinity_v3.
    """
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    script = (
        "import sys, importlib\n"
        f"sys.path[:0] = {[str(wheel_tree), *dependencies]!r}\n"
        f"module = importlib.import_module({module!r})\n"
        f"assert module.__file__.startswith({str(wheel_tree)!r}), module.__file__\n"
        f"sys.argv = ['program', *{options!r}]\n"
        "sys.exit(module.main())"
    )
    return subprocess.run(
        [sys.executable, "-S", "-c", script],
        capture_output=True,
        text=True,
        cwd=wheel_tree,
        timeout=120,
        check=False,
    )
