"""Fixtures of the whole test tree, and the marks that follow from where a test lies."""

import os
import signal
from pathlib import Path

import pytest

from compiled import CompiledArtifacts, compile_checkpoint, minilm_checkpoint
from tiny_artifacts import FLOAT32_TARGET, HOST_TARGETS

pytest_plugins = ("served_fixtures", "tiny_fixtures")

# Test processes share the machine's CPUs: a team that spins while it waits would starve the others.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Shells start background jobs with SIGINT ignored, which programs started by tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
MARKED_FOLDERS = ("architecture", "e2e")
SLOW_FOLDERS = ("e2e", "compiler", "runtime")
"""They come first: a worker that gets a slow file last would be the only one at work."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = _folder(item)
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)
    places = {folder: place for place, folder in enumerate(SLOW_FOLDERS)}
    items.sort(key=lambda item: places.get(_folder(item), len(places)))


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all worker processes of this test run share."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def compiled_artifact(run_folder: Path) -> CompiledArtifacts:
    """Call it with a key and a build function: see `compiled.CompiledArtifacts`."""
    return CompiledArtifacts(run_folder / "compiled")


@pytest.fixture(scope="session")
def minilm_artifact(compiled_artifact: CompiledArtifacts) -> Path:
    """all-MiniLM-L6-v2 for this host's best target and in float32, with cls pooling beside its own.

    Compiled by the real program, unless INFINITY_TEST_MINILM_ARTIFACT names one that is there.
    """

    def build(path: Path) -> None:
        options = ["--name", "all-MiniLM-L6-v2", "--pooling", "mean", "--pooling", "cls"]
        for target in dict.fromkeys((HOST_TARGETS[0].name, FLOAT32_TARGET)):
            options += ["--target", target]
        compile_checkpoint(minilm_checkpoint(), path, *options)

    given = os.environ.get("INFINITY_TEST_MINILM_ARTIFACT")
    return Path(given) if given else compiled_artifact("all-MiniLM-L6-v2", build)
