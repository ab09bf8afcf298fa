"""What an opened artifact offers, and how native files are handed to a loader."""

import os
from pathlib import Path

import pytest

from infinity_v3.artifacts.codec import artifact_id
from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.store import open_artifact

MODEL = "targets/cpu-x86_64-avx2-f32/model.so"
CONTENT = b"engine of cpu-x86_64-avx2-f32"


@pytest.mark.parametrize("digests", DigestPolicy)
def test_opened_artifact_has_path_manifest_and_id(
    artifact_dir: Path, digests: DigestPolicy
) -> None:
    artifact = open_artifact(artifact_dir, digests=digests)

    assert artifact.path == artifact_dir
    assert artifact.manifest.name == "fake-encoder"
    assert artifact.artifact_id == artifact_id((artifact_dir / "artifact.json").read_bytes())


@pytest.mark.parametrize("digests", DigestPolicy)
def test_native_file_is_readable_through_its_path(
    artifact_dir: Path, digests: DigestPolicy
) -> None:
    artifact = open_artifact(artifact_dir, digests=digests)

    with artifact.open_native(MODEL) as native:
        assert Path(native.path).read_bytes() == CONTENT


def test_hashed_native_file_survives_a_swap_of_its_name(artifact_dir: Path) -> None:
    artifact = open_artifact(artifact_dir, digests=DigestPolicy.ALWAYS)

    with artifact.open_native(MODEL) as native:
        (artifact_dir / MODEL).unlink()
        (artifact_dir / MODEL).write_bytes(b"something else entirely")
        assert native.path.startswith("/proc/self/fd/")
        assert Path(native.path).read_bytes() == CONTENT


def test_hashed_native_file_gives_its_descriptor_back(artifact_dir: Path) -> None:
    artifact = open_artifact(artifact_dir, digests=DigestPolicy.ALWAYS)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208  # a count, no paths

    native = artifact.open_native(MODEL)
    native.close()
    native.close()

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_native_file_changed_after_opening_is_refused(artifact_dir: Path) -> None:
    artifact = open_artifact(artifact_dir, digests=DigestPolicy.ALWAYS)
    (artifact_dir / MODEL).write_bytes(CONTENT.upper())

    with pytest.raises(RefusedError, match=rf"{MODEL}: expected sha256 [0-9a-f]{{64}}, found"):
        artifact.open_native(MODEL)


@pytest.mark.parametrize("level", [MODEL, "targets/cpu-x86_64-avx2-f32", "targets"])
def test_native_file_behind_a_link_is_refused(artifact_dir: Path, level: str) -> None:
    artifact = open_artifact(artifact_dir, digests=DigestPolicy.ALWAYS)
    outside = artifact_dir.parent / "outside"
    (artifact_dir / level).rename(outside)
    (artifact_dir / level).symlink_to(outside)

    with pytest.raises(RefusedError, match="link"):
        artifact.open_native(MODEL)


@pytest.mark.parametrize("path", ["../fake/artifact.json", "artifact.json", "/etc/passwd", ""])
def test_native_file_must_be_listed(artifact_dir: Path, path: str) -> None:
    with pytest.raises(RefusedError, match="not listed in artifact"):
        open_artifact(artifact_dir).open_native(path)


def test_file_gives_the_manifest_entry(artifact_dir: Path) -> None:
    assert open_artifact(artifact_dir).file(MODEL).num_bytes == len(CONTENT)
