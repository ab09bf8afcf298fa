"""A small artifact that was never compiled, with nothing to run in it, and built kernels."""

from pathlib import Path

import pytest

from fake_artifact import make_manifest, make_target, write_fake_files
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.writer import ArtifactWriter
from kernel_calls import HOST_TARGETS, Kernels

TARGET = "cpu-x86_64-avx2-f32"
BUILD = {
    "built_at": "2025-01-02T03:04:05+00:00",
    "host": {"cpu_model": "Test CPU"},
    "labels": {"team": "search"},
    "warnings": ["cls assumed"],
    "parity": {TARGET: {"pooled.max_abs": 1.25e-6}},
}


@pytest.fixture(scope="session")
def sample_artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """A published artifact whose engine is a few bytes of text."""
    manifest = make_manifest(name="sample", targets=(make_target(TARGET),))
    with ArtifactWriter(tmp_path_factory.mktemp("sample") / "artifact") as writer:
        write_fake_files(writer.stage, manifest)
        return writer.commit(manifest, profile={}, build=BUILD)


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the kernel libraries of this session lie: each is built once."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="session", params=HOST_TARGETS, ids=lambda target: target.name)
def kernels(request: pytest.FixtureRequest, kernel_cache: Path) -> Kernels:
    """The kernel library of each CPU class that this host can run."""
    return Kernels(request.param, kernel_cache)
