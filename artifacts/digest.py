"""Hashing of files through one descriptor, and the state that tells whether a file changed since.

Knows nothing of manifests.
"""

import hashlib
import os
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

BUFFER_BYTES = 1 << 20
_OPEN_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class DigestPolicy(str, Enum):
    """When the digests of an artifact's files are computed."""

    AUTO = "auto"
    """Once per file state; the result is remembered in the user's cache directory."""
    ALWAYS = "always"
    """At every opening; native files are loaded through the descriptor that was hashed."""


@dataclass(frozen=True, slots=True)
class FileState:
    """What changes whenever the content of a file changes."""

    device: int
    inode: int
    num_bytes: int
    mtime_ns: int
    ctime_ns: int

    @staticmethod
    def of(status: os.stat_result) -> "FileState":
        """Take the state from a stat result."""
        return FileState(
            status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
        )

    @property
    def key(self) -> str:
        """The state as text."""
        return f"{self.device}:{self.inode}:{self.num_bytes}:{self.mtime_ns}:{self.ctime_ns}"


def open_beneath(root: Path, relative_path: str) -> int:
    """Open a file below `root` for reading without following a link at any level below `root`.

    Returns:
        A descriptor that the caller closes.

    Raises:
        OSError: absent, a link (ELOOP or ENOTDIR), or not permitted.
    """
    *folders, name = relative_path.split("/")
    folder = os.open(root, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY)
    try:
        for part in folders:
            inner = os.open(part, _OPEN_FLAGS | os.O_DIRECTORY, dir_fd=folder)
            os.close(folder)
            folder = inner
        # O_NONBLOCK: a named pipe put in the file's place must not block the open.
        return os.open(name, _OPEN_FLAGS | os.O_NONBLOCK, dir_fd=folder)
    finally:
        os.close(folder)


def sha256_of(descriptor: int) -> str:
    """Return the 64 hex digits of everything from the descriptor's position to the end."""
    digest = hashlib.sha256()
    buffer = bytearray(BUFFER_BYTES)
    view = memoryview(buffer)
    while num_read := os.readv(descriptor, [buffer]):
        digest.update(view[:num_read])
    return digest.hexdigest()


def sha256_beneath(root: Path, relative_path: str) -> tuple[str, FileState | None]:
    """Hash a file below `root`.

    Returns:
        The digest, and the state it belongs to; None when the file changed while it was read.
    """
    descriptor = open_beneath(root, relative_path)
    try:
        before = FileState.of(os.fstat(descriptor))
        digest = sha256_of(descriptor)
        after = FileState.of(os.fstat(descriptor))
    finally:
        os.close(descriptor)
    return digest, after if before == after else None
