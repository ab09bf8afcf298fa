"""Copies of files block by block. Knows nothing of where the blocks come from."""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from infinity_v3.artifacts.digest import BUFFER_BYTES
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed


def copy_out(blocks: Iterable[bytes | memoryview], target: Path) -> str:
    """Write a new file durably; it is removed if that fails.

    Returns:
        The 64 hex digits of the sha256 of what was written.

    Raises:
        RunFailedError: the target exists or cannot be written.
    """
    digest = hashlib.sha256()
    with os_errors_as_run_failed("write", target):
        file = target.open("xb", buffering=0)
    try:
        with file:
            for block in blocks:
                digest.update(block)
                _write(file.fileno(), block, target)
            with os_errors_as_run_failed("write", target):
                os.fsync(file.fileno())
    except BaseException:
        target.unlink(missing_ok=True)
        raise
    return digest.hexdigest()


def blocks_of(source: Path) -> Iterator[memoryview]:
    """Yield a file's content in one buffer, which the next block overwrites.

    Raises:
        RunFailedError: it cannot be read.
    """
    with os_errors_as_run_failed("read", source):
        descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with os_errors_as_run_failed("read", source):
            yield from rest_of(descriptor)
    finally:
        os.close(descriptor)


def rest_of(descriptor: int) -> Iterator[memoryview]:
    """Yield the rest of an open file likewise; raises OSError."""
    buffer = bytearray(BUFFER_BYTES)
    view = memoryview(buffer)
    while num_read := os.readv(descriptor, [buffer]):
        yield view[:num_read]


def _write(descriptor: int, block: bytes | memoryview, target: Path) -> None:
    rest = memoryview(block)
    with os_errors_as_run_failed("write", target):
        while rest:
            rest = rest[os.write(descriptor, rest) :]
