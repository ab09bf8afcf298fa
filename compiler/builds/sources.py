"""Finds out what a checkpoint holds before anything of it is built: digests, or a commit.

Knows nothing of build keys.
"""

import hashlib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.digest import FileState, sha256_of
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.memo import DigestMemo, memo_directory
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.compiler.builds.entry import ModelEntry
from infinity_v3.compiler.checkpoint import LOCAL_REPOSITORY, check_source, read_license
from infinity_v3.compiler.checkpoint_files import HUB_PATTERNS, README, find_files
from infinity_v3.compiler.preflight import WITHOUT_WEIGHTS
from infinity_v3.compiler.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceState:
    """A checkpoint at one moment.

    Attributes:
        repository: hub id, or "local".
        revision: commit of a hub id; None for a directory.
        files: sha256 by path of every file that a compile reads; empty for a hub id, whose commit
            says the same.
        license: what its README declares; None for a hub id.
    """

    repository: str
    revision: str | None
    files: Mapping[str, str]
    license: str | None


def read_source(entry: ModelEntry, progress: Progress) -> SourceState:
    """Hash a directory, or resolve the revision of a hub id, and compare with what is expected.

    Raises:
        UsageError: there is no such checkpoint, or it is incomplete.
        RefusedError: a file has another digest than the build file says, or is not read at all.
        RunFailedError: a file cannot be read, or the hub cannot be reached.
    """
    check_source(entry.request)
    path = Path(entry.request.checkpoint)
    state, files = (
        _read_folder(entry, path, progress) if path.is_dir() else _read_hub(entry, progress)
    )
    _check_expected(entry, files)
    return state


def _read_folder(
    entry: ModelEntry, path: Path, progress: Progress
) -> tuple[SourceState, Mapping[str, str]]:
    with os_errors_as_run_failed("read", path):
        files = _hash(path, find_files(path).read, entry.name, progress)
    state = SourceState(
        repository=LOCAL_REPOSITORY,
        revision=None,
        files=files,
        license=read_license(path / README),
    )
    return state, files


def _read_hub(entry: ModelEntry, progress: Progress) -> tuple[SourceState, Mapping[str, str]]:
    """The state, and the digests of the files whose digests are expected."""
    from infinity_v3.compiler.hub import fetch_snapshot, is_hub_offline

    is_whole = bool(entry.expected_files) or is_hub_offline()
    with progress.stage(f"look up {entry.request.checkpoint}"):
        snapshot = fetch_snapshot(
            entry.request.checkpoint,
            entry.request.revision,
            HUB_PATTERNS if is_whole else WITHOUT_WEIGHTS,
        )
    state = SourceState(
        repository=entry.request.checkpoint, revision=snapshot.commit, files={}, license=None
    )
    if not entry.expected_files:
        return state, {}
    with os_errors_as_run_failed("read", snapshot.path):
        names = [n for n in find_files(snapshot.path).read if n in entry.expected_files]
        return state, _hash(snapshot.path, names, entry.name, progress)


def _hash(folder: Path, names: Iterable[str], name: str, progress: Progress) -> dict[str, str]:
    """Digests by path; a file that did not change since it was last hashed is not read again."""
    identity = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    memo = DigestMemo(identity, memo_directory(os.environ))
    digests: dict[str, str] = {}
    learnt: dict[FileState, str] = {}
    paths = {one: folder / one for one in names}
    num_bytes = sum(path.stat().st_size for path in paths.values())
    with progress.stage(f"hash {name}", num_bytes) as stage:
        for one, path in paths.items():
            known = memo.recall(FileState.of(path.stat()))
            digests[one] = known or _hash_file(path, learnt)
            stage.advance(path.stat().st_size)
    memo.remember(learnt)
    return digests


def _hash_file(path: Path, learnt: dict[FileState, str]) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before = FileState.of(os.fstat(descriptor))
        digest = sha256_of(descriptor)
        if FileState.of(os.fstat(descriptor)) == before:
            learnt[before] = digest
    finally:
        os.close(descriptor)
    return digest


def _check_expected(entry: ModelEntry, found: Mapping[str, str]) -> None:
    for file, digest in entry.expected_files.items():
        if file not in found:
            raise RefusedError(
                f"{entry.place}: expect: {file}: expected a file that a compile reads of "
                f"{entry.request.checkpoint}, found none of that name"
            )
        if found[file] != digest:
            raise RefusedError(
                f"{entry.place}: expect: {file}: expected sha256 {digest}, found {found[file]}; "
                f"{entry.request.checkpoint} is not the checkpoint that the build file means"
            )
