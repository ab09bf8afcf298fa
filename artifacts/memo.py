"""Remembers which file states had which digest, in the user's cache directory.

A memo that someone else could have written is ignored. A lost entry costs one hash, no more.
"""

import json
import os
import secrets
import stat
from collections.abc import Mapping
from pathlib import Path

from infinity_v3.artifacts.digest import FileState
from infinity_v3.artifacts.names import is_sha256
from infinity_v3.artifacts.user_cache import user_cache

MAX_MEMO_BYTES = 8 << 20
MAX_ENTRIES = 8192
MAX_MEMOS = 512
"""Memos of artifacts that nobody opens any more go first."""


def memo_directory(environ: Mapping[str, str]) -> Path | None:
    """Return the folder of memos in the user's cache, or None where the user has none."""
    cache = user_cache(environ)
    return None if cache is None else cache / "digests"


class DigestMemo:
    """The digests known for the files of one artifact.

    Safe against concurrent readers and writers: the file is replaced as a whole, and of two writers
    the later one keeps what it read of the other. A failing file system means "nothing remembered".
    """

    def __init__(self, artifact_id: str, directory: Path | None) -> None:
        self._directory = directory
        self._name = f"{artifact_id.removeprefix('sha256:')}.json"
        self._known = self._read()

    def recall(self, state: FileState) -> str | None:
        """Return the digest that the file had in this state, or None."""
        return self._known.get(state.key)

    def remember(self, digests: Mapping[FileState, str]) -> None:
        """Add digests and write them out, where the cache directory is the user's own."""
        if not digests or self._directory is None:
            return
        try:
            _create_private(self._directory)
        except OSError:
            return
        if not _is_private(self._directory):
            return
        added = {state.key: digest for state, digest in digests.items()}
        kept = {key: value for key, value in self._read().items() if key not in added}
        entries = list(kept.items())[-MAX_ENTRIES:] + list(added.items())
        self._known = dict(entries)
        self._replace(self._directory, json.dumps(self._known).encode())

    def _read(self) -> dict[str, str]:
        if self._directory is None or not _is_private(self._directory):
            return {}
        try:
            descriptor = os.open(
                self._directory / self._name,
                os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK,
            )
        except OSError:
            return {}
        with os.fdopen(descriptor, "rb") as file:
            return _entries_of(file.read(MAX_MEMO_BYTES)) if _is_trusted(descriptor) else {}

    def _replace(self, directory: Path, data: bytes) -> None:
        temporary = directory / f".{self._name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(data)
            temporary.replace(directory / self._name)
            _prune(directory)
        except OSError:
            temporary.unlink(missing_ok=True)


def _entries_of(data: bytes) -> dict[str, str]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        key: value for key, value in found.items() if isinstance(value, str) and is_sha256(value)
    }


def _prune(directory: Path) -> None:
    memos = list(directory.iterdir())
    if len(memos) <= MAX_MEMOS:
        return
    for memo in sorted(memos, key=lambda memo: memo.lstat().st_mtime_ns)[:-MAX_MEMOS]:
        memo.unlink(missing_ok=True)


def _create_private(directory: Path) -> None:
    for path in (directory.parent.parent, directory.parent, directory):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _is_private(directory: Path) -> bool:
    """A directory of mode 0700 and our own, in one that nobody else can swap it in."""
    try:
        own, parent = directory.lstat(), directory.parent.lstat()
    except OSError:
        return False
    return (
        stat.S_ISDIR(own.st_mode)
        and own.st_uid == os.geteuid()
        and stat.S_IMODE(own.st_mode) & 0o077 == 0
        and parent.st_uid in (0, os.geteuid())
        and stat.S_IMODE(parent.st_mode) & 0o022 == 0
    )


def _is_trusted(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.geteuid()
        and stat.S_IMODE(status.st_mode) & 0o077 == 0
    )
