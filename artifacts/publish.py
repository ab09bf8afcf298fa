"""Makes a staged directory durable and visible in one step. Knows nothing of its contents."""

import ctypes
import errno
import os
from collections.abc import Iterable
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.tree import Tree

_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
RENAME_UNSUPPORTED = frozenset({errno.ENOSYS, errno.EINVAL})
"""What `rename_noreplace` returns where the kernel or the file system lacks it."""


def existing_output(output: Path) -> UsageError:
    """Make the error for an output path that is taken."""
    return UsageError(f"{output}: already exists; remove it or choose another path")


def drop_shared_write(tree: Tree) -> None:
    """Take write permission for group and others away, whatever the umask was."""
    for path, status in {**tree.files, **tree.directories}.items():
        if status.st_mode & 0o022:
            (tree.root / path).chmod(status.st_mode & 0o7755)


def sync_tree(tree: Tree) -> None:
    """Force all files, then all directories, to the disk."""
    sync_paths(tree.root / path for path in tree.files)
    sync_paths(tree.root / path for path in sorted(tree.directories, reverse=True))


def sync_paths(paths: Iterable[Path]) -> None:
    """Force files or directories to the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def rename_without_overwrite(source: Path, output: Path) -> None:
    """Rename a directory to a path that does not exist.

    Raises:
        UsageError: `output` exists.
        OSError: the rename failed; nothing changed.
    """
    code = rename_noreplace(source, output)
    if code in RENAME_UNSUPPORTED:
        # No exclusive rename on this file system; the output lock keeps our writers apart.
        if os.path.lexists(output):
            raise existing_output(output)
        source.rename(output)
    elif code == errno.EEXIST:
        raise existing_output(output)
    elif code:
        raise OSError(code, os.strerror(code), str(output))


def rename_noreplace(
    source: Path | str,
    target: Path | str,
    *,
    folders: tuple[int, int] = (_AT_FDCWD, _AT_FDCWD),
) -> int:
    """Call renameat2 so that an existing target stays.

    Args:
        source, target: the old and the new path.
        folders: descriptors of the folders that the two are relative to.

    Returns:
        0 or an errno.
    """
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return errno.ENOSYS
    renameat2.argtypes = (
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_int,
        ctypes.c_char_p,
        ctypes.c_uint,
    )
    old, new = folders
    arguments = (old, os.fsencode(source), new, os.fsencode(target), _RENAME_NOREPLACE)
    return ctypes.get_errno() if renameat2(*arguments) else 0
