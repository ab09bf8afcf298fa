"""Folders below a root, opened and made without following links. Knows nothing of files."""

import os
from pathlib import Path

_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECTORY
_MODE = 0o755


def open_folder(root: Path, folder: str) -> int:
    """Open a folder below `root`; "" is the root itself, which may be reached through a link.

    Returns:
        A descriptor that the caller closes.

    Raises:
        OSError: absent, a link (ELOOP or ENOTDIR), not a folder, or not permitted.
    """
    descriptor = os.open(root, _FLAGS)
    for part in filter(None, folder.split("/")):
        descriptor = _step(descriptor, part)
    return descriptor


def make_folder(root: Path, folder: str) -> int:
    """Open a folder below `root` as `open_folder` does, making durably what is absent of it."""
    try:
        return open_folder(root, folder)
    except FileNotFoundError:
        root.mkdir(mode=_MODE, parents=True, exist_ok=True)
    descriptor = os.open(root, _FLAGS)
    for part in filter(None, folder.split("/")):
        _make(descriptor, part)
        descriptor = _step(descriptor, part)
    return descriptor


def _step(folder: int, part: str) -> int:
    try:
        return os.open(part, _FLAGS | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)


def _make(folder: int, part: str) -> None:
    try:
        os.mkdir(part, _MODE, dir_fd=folder)
    except FileExistsError:
        return
    except BaseException:
        os.close(folder)
        raise
    os.fsync(folder)
