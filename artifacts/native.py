"""Holds a native file in the state that was checked, while a loader opens it. Knows no loader."""

import errno
import os
from pathlib import Path
from types import TracebackType

from infinity_v3.artifacts.digest import open_beneath, sha256_of
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import FileEntry
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed

_REPLACED = frozenset({errno.ELOOP, errno.ENOTDIR, errno.ENOENT})


class NativeFile:
    """A path to give to `dlopen`, valid until `close`.

    Keep it open for as long as the library may read its own file again (mapped weights).
    """

    def __init__(self, path: str, descriptor: int | None) -> None:
        self.path = path
        self._descriptor = descriptor

    @classmethod
    def unchecked(cls, root: Path, entry: FileEntry) -> "NativeFile":
        """Name the file itself, whose digest was checked when the artifact was opened."""
        return cls(_path_of_content(str(root), entry.path, entry.sha256), None)

    @classmethod
    def hashed(cls, root: Path, entry: FileEntry) -> "NativeFile":
        """Open the file once, hash it, and name the open descriptor.

        Raises:
            RefusedError: its content is not the listed one, or a link stands in its path.
        """
        with os_errors_as_run_failed("read", root / entry.path):
            descriptor = _open_regular(root, entry.path)
            native = cls(_path_of_content("/proc/self/fd", descriptor, entry.sha256), descriptor)
            try:
                _check_content(root, entry, descriptor)
            except BaseException:
                native.close()
                raise
        return native

    def close(self) -> None:
        """Give the descriptor back; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def __enter__(self) -> "NativeFile":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _path_of_content(folder: str, name: object, sha256: str) -> str:
    """Spell a path differently for every content.

    The dynamic loader takes a path that it was given before for the library it loaded then, even
    if another file lies there now; and numbers of descriptors come again. So the digest's first 128
    bits stand in the path, as slashes and dots that the kernel skips.
    """
    bits = f"{int(sha256[:32], 16):0128b}"
    return f"{folder}{''.join('/.' if bit == '1' else '/' for bit in bits)}/{name}"


def _open_regular(root: Path, relative_path: str) -> int:
    try:
        return open_beneath(root, relative_path)
    except OSError as error:
        if error.errno not in _REPLACED:
            raise
        raise RefusedError(
            f"{root}: {relative_path}: expected the file that was checked, found a link or nothing"
        ) from error


def _check_content(root: Path, entry: FileEntry, descriptor: int) -> None:
    digest = sha256_of(descriptor)
    if digest != entry.sha256:
        raise RefusedError(f"{root}: {entry.path}: expected sha256 {entry.sha256}, found {digest}")
