"""Digests are computed once per file state; a memo that others could have written is ignored."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infinity_v3.artifacts import integrity, memo
from infinity_v3.artifacts.digest import DigestPolicy, FileState, sha256_beneath
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.memo import DigestMemo, memo_directory
from infinity_v3.artifacts.store import open_artifact

MODEL = "targets/cpu-x86_64-avx2-f32/model.so"
ID = "sha256:" + "ab" * 32


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were hashed; all files count as settled."""
    paths: list[str] = []

    def spy(root: Path, path: str) -> tuple[str, FileState | None]:
        paths.append(path)
        return sha256_beneath(root, path)

    monkeypatch.setattr(integrity, "sha256_beneath", spy)
    monkeypatch.setattr(integrity, "_SETTLED_NS", -1)
    return paths


def memo_file(cache: Path) -> Path:
    (found,) = (cache / "infinity_v3" / "digests").iterdir()
    return found


def test_second_opening_hashes_nothing(artifact_dir: Path, hashed: list[str]) -> None:
    artifact = open_artifact(artifact_dir)
    assert hashed == [entry.path for entry in artifact.manifest.files]

    hashed.clear()
    open_artifact(artifact_dir)

    assert hashed == []


def test_always_hashes_everything_again(artifact_dir: Path, hashed: list[str]) -> None:
    open_artifact(artifact_dir)
    hashed.clear()
    artifact = open_artifact(artifact_dir, digests=DigestPolicy.ALWAYS)

    assert hashed == [entry.path for entry in artifact.manifest.files]


def test_moved_artifact_is_still_known(artifact_dir: Path, hashed: list[str]) -> None:
    open_artifact(artifact_dir)
    hashed.clear()
    moved = artifact_dir.rename(artifact_dir.parent / "moved")
    open_artifact(moved)

    assert hashed == []


def test_changed_file_is_hashed_again_although_size_and_mtime_are_the_same(
    artifact_dir: Path, hashed: list[str]
) -> None:
    open_artifact(artifact_dir)
    hashed.clear()
    file = artifact_dir / MODEL
    status = file.stat()
    time.sleep(0.02)  # one tick of the file system's clock
    file.write_bytes(file.read_bytes().upper())
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    with pytest.raises(RefusedError, match=f"{MODEL}: expected sha256"):
        open_artifact(artifact_dir)
    assert hashed == [MODEL]


def test_file_changed_a_moment_ago_is_not_remembered(artifact_dir: Path, cache_dir: Path) -> None:
    for path in artifact_dir.rglob("*"):
        path.chmod(path.stat().st_mode)  # renews ctime
    open_artifact(artifact_dir)

    assert not (cache_dir / "infinity_v3").exists()


def test_refused_file_is_not_remembered(
    artifact_dir: Path, hashed: list[str], cache_dir: Path
) -> None:
    file = artifact_dir / MODEL
    file.write_bytes(file.read_bytes().upper())
    for _ in range(2):
        with pytest.raises(RefusedError, match="expected sha256"):
            open_artifact(artifact_dir)

    assert hashed.count(MODEL) == 2


def test_memo_is_private(artifact_dir: Path, hashed: list[str], cache_dir: Path) -> None:
    open_artifact(artifact_dir)

    assert memo_file(cache_dir).stat().st_mode & 0o777 == 0o600
    assert memo_file(cache_dir).parent.stat().st_mode & 0o777 == 0o700


def _loosen_file(path: Path) -> None:
    path.chmod(0o640)


def _loosen_directory(path: Path) -> None:
    path.parent.chmod(0o750)


def _loosen_parent(path: Path) -> None:
    path.parent.parent.chmod(0o777)


def _link_file(path: Path) -> None:
    outside = path.parent.parent.parent / "elsewhere.json"
    path.rename(outside)
    path.symlink_to(outside)


def _link_directory(path: Path) -> None:
    outside = path.parent.parent.parent / "elsewhere"
    path.parent.rename(outside)
    path.parent.symlink_to(outside)


def _give_away(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize(
    "make_insecure",
    [_loosen_file, _loosen_directory, _loosen_parent, _link_file, _link_directory, _give_away],
)
def test_insecure_memo_is_ignored(
    artifact_dir: Path,
    hashed: list[str],
    cache_dir: Path,
    make_insecure: Callable[[Path], None],
) -> None:
    open_artifact(artifact_dir)
    hashed.clear()
    make_insecure(memo_file(cache_dir))
    open_artifact(artifact_dir)

    assert MODEL in hashed


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff\xfe", b"[]", b"null", b'{"1:2:3:4:5":7}', b"[" * 100_000]
)
def test_corrupt_memo_is_ignored_and_replaced(
    artifact_dir: Path, hashed: list[str], cache_dir: Path, data: bytes
) -> None:
    open_artifact(artifact_dir)
    memo_file(cache_dir).write_bytes(data)
    hashed.clear()
    open_artifact(artifact_dir)
    assert MODEL in hashed

    hashed.clear()
    open_artifact(artifact_dir)
    assert hashed == []


def test_wrong_digest_in_the_memo_is_not_believed(
    artifact_dir: Path, hashed: list[str], cache_dir: Path
) -> None:
    open_artifact(artifact_dir)
    path = memo_file(cache_dir)
    known = json.loads(path.read_bytes())
    path.write_text(json.dumps(dict.fromkeys(known, "0" * 64)))
    hashed.clear()
    open_artifact(artifact_dir)

    assert MODEL in hashed


def test_unusable_cache_directory_costs_only_the_hash(
    artifact_dir: Path, hashed: list[str], cache_dir: Path
) -> None:
    cache_dir.write_bytes(b"a file, not a directory")
    for _ in range(2):
        open_artifact(artifact_dir)

    assert hashed.count(MODEL) == 2


def test_memos_lie_in_the_users_cache() -> None:
    assert memo_directory({"XDG_CACHE_HOME": "/c"}) == Path("/c/infinity_v3/digests")
    assert memo_directory({"HOME": ""}) is None


def _state(number: int) -> FileState:
    return FileState(1, number, 2, 3, 4)


REMEMBER_MANY = """
import sys
from pathlib import Path
from infinity_v3.artifacts.digest import FileState
from infinity_v3.artifacts.memo import DigestMemo

for number in range(int(sys.argv[3]), int(sys.argv[3]) + 40):
    memo = DigestMemo(sys.argv[1], Path(sys.argv[2]))
    memo.remember({FileState(1, number, 2, 3, 4): f"{number:064x}"})
"""


def test_concurrent_writers_leave_a_whole_memo(cache_dir: Path) -> None:
    directory = cache_dir / "infinity_v3" / "digests"
    writers = [
        subprocess.Popen([sys.executable, "-c", REMEMBER_MANY, ID, str(directory), first])
        for first in ("0", "1000", "2000")
    ]

    assert [writer.wait(timeout=60) for writer in writers] == [0, 0, 0]
    known = json.loads(memo_file(cache_dir).read_bytes())
    assert len(known) >= 40
    reader = DigestMemo(ID, directory)
    assert all(reader.recall(_state(int(digest, 16))) == digest for digest in known.values())


def test_memo_of_another_artifact_is_another_file(cache_dir: Path) -> None:
    directory = cache_dir / "infinity_v3" / "digests"
    DigestMemo(ID, directory).remember({_state(1): "1" * 64})

    assert DigestMemo("sha256:" + "cd" * 32, directory).recall(_state(1)) is None
    assert DigestMemo(ID, directory).recall(_state(1)) == "1" * 64


def test_oldest_memos_make_room(cache_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "MAX_MEMOS", 2)
    directory = cache_dir / "infinity_v3" / "digests"
    for age, name in ((3, "aa"), (2, "bb"), (1, "cc")):
        DigestMemo(f"sha256:{name}", directory).remember({_state(1): "1" * 64})
        os.utime(directory / f"{name}.json", (2000 - age, 2000 - age))
    DigestMemo("sha256:dd", directory).remember({_state(1): "1" * 64})

    assert sorted(path.name for path in directory.iterdir()) == ["cc.json", "dd.json"]
