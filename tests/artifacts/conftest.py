"""A private cache directory and a fresh valid artifact for every test."""

from pathlib import Path

import pytest

from fake_artifact import write_fake_artifact


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the digest memo of the tests away from the user's own."""
    path = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(path))
    return path


@pytest.fixture
def artifact_dir(tmp_path: Path) -> Path:
    """A valid artifact directory to mutate."""
    return write_fake_artifact(tmp_path / "fake")
