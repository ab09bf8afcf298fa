"""Compares a directory with its manifest: the set of files, their sizes, their digests.

Knows nothing of how a manifest is written or an engine is loaded.
"""

import os
import stat
import time
from collections.abc import Mapping

from infinity_v3.artifacts.digest import DigestPolicy, FileState, sha256_beneath
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import UNLISTED_FILES
from infinity_v3.artifacts.manifest import Backend, FileEntry, Manifest
from infinity_v3.artifacts.memo import DigestMemo
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.tree import Tree

_ROOT = 0
_AGAIN = "copy the artifact here again, or compile the checkpoint again"
_SETTLED_NS = 100_000_000
"""File systems tick more coarsely than in nanoseconds: a file changed this recently may change
again without its state telling."""


def check_files(tree: Tree, manifest: Manifest) -> None:
    """Refuse files that are unlisted, absent or of the wrong size. Opens none of them.

    Raises:
        RefusedError: names the file.
    """
    entries = {entry.path: entry for entry in manifest.files}
    for path in sorted(tree.files):
        if path not in entries and path not in UNLISTED_FILES:
            raise _refuse(tree, path, "not listed in artifact.json; remove it")
    for path in sorted(tree.directories.keys() - _directories_of(entries)):
        raise _refuse(tree, f"{path}/", "directory without a listed file; remove it")
    for path, entry in entries.items():
        _check_size(tree, entry, tree.files.get(path))


def check_writers(tree: Tree, manifest: Manifest) -> None:
    """Refuse native code that users other than this one and root could replace.

    Raises:
        RefusedError: a directory or file is writable by group or others, or owned by another user.
    """
    if all(target.backend is Backend.ONNX for target in manifest.targets):
        return
    for path, status in sorted({**tree.directories, **tree.files}.items()):
        if stat.S_IMODE(status.st_mode) & 0o022:
            raise _refuse(
                tree,
                path or ".",
                "group or others can write to it, and the artifact holds native code; "
                "run `chmod -R go-w` on it, or pass --allow-shared-artifacts",
            )
        if status.st_uid not in (os.geteuid(), _ROOT):
            raise _refuse(
                tree,
                path or ".",
                f"owned by uid {status.st_uid}, who can replace it, and the artifact holds native "
                f"code; expected uid {os.geteuid()} or root: run `chown -R` on it, or pass "
                "--allow-shared-artifacts",
            )


def check_digests(tree: Tree, manifest: Manifest, memo: DigestMemo, policy: DigestPolicy) -> None:
    """Refuse files whose content is not the listed one; remember those that are.

    Raises:
        RefusedError: names the first file with another digest.
        RunFailedError: a file cannot be read.
    """
    fresh: dict[FileState, str] = {}
    for entry in manifest.files:
        state = FileState.of(tree.files[entry.path])
        if policy is DigestPolicy.AUTO and memo.recall(state) == entry.sha256:
            continue
        _check_digest(tree, entry, state)
        if time.time_ns() - state.ctime_ns > _SETTLED_NS:
            fresh[state] = entry.sha256
    memo.remember(fresh)


def _check_size(tree: Tree, entry: FileEntry, status: os.stat_result | None) -> None:
    if status is None:
        raise _refuse(tree, entry.path, f"listed in artifact.json, but absent; {_AGAIN}")
    if status.st_size != entry.num_bytes:
        found = f"expected {entry.num_bytes} bytes, found {status.st_size}; {_AGAIN}"
        raise _refuse(tree, entry.path, found)


def _check_digest(tree: Tree, entry: FileEntry, state: FileState) -> None:
    with os_errors_as_run_failed("read", tree.root / entry.path):
        digest, hashed = sha256_beneath(tree.root, entry.path)
    if hashed != state:
        raise _refuse(tree, entry.path, "it changed while it was checked; open it again")
    if digest != entry.sha256:
        raise _refuse(tree, entry.path, f"expected sha256 {entry.sha256}, found {digest}; {_AGAIN}")


def _directories_of(entries: Mapping[str, FileEntry]) -> set[str]:
    found = {""}
    for path in entries:
        parts = path.split("/")[:-1]
        found.update("/".join(parts[: depth + 1]) for depth in range(len(parts)))
    return found


def _refuse(tree: Tree, path: str, problem: str) -> RefusedError:
    return RefusedError(f"{tree.root}: {path}: {problem}")
