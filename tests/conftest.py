"""Fixtures of the whole test tree, and the marks that follow from where a test lies."""

import os
import signal
from pathlib import Path

import pytest

from compiled import CompiledArtifacts, compile_checkpoint, minilm_checkpoint

pytest_plugins = ("served_fixtures", "tiny_fixtures")

# Test processes share the machine's CPUs: a team that spins while it waits would starve the others.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

# Shells start background jobs with SIGINT ignored, which programs started by tests would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

TESTS = Path(__file__).parent
MARKED_FOLDERS = ("architecture", "e2e")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        folder = item.path.relative_to(TESTS).parts[0]
        if folder in MARKED_FOLDERS:
            item.add_marker(folder)


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
    """all-MiniLM-L6-v2 for every target that this host can build, with cls pooling beside its own.

    Compiled by the real program, unless INFINITY_TEST_MINILM_ARTIFACT names one that is there.
    """

    def build(path: Path) -> None:
        poolings = ("--pooling", "mean", "--pooling", "cls")
        compile_checkpoint(minilm_checkpoint(), path, "--name", "all-MiniLM-L6-v2", *poolings)

    given = os.environ.get("INFINITY_TEST_MINILM_ARTIFACT")
    return Path(given) if given else compiled_artifact("all-MiniLM-L6-v2", build)
