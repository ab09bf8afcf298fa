"""A file written aside, made durable, and put in its place in one step.

Knows nothing of what is in it, nor who else writes.
"""

import errno
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

from infinity_v3.artifacts.publish import RENAME_UNSUPPORTED, rename_noreplace
from infinity_v3.artifacts.registry.folders import make_folder

TEMPORARIES = ".tmp"
"""The folder below the root in which files are written; on the root's own file system."""

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
_MODE = 0o644
_LINKS_UNSUPPORTED = frozenset({errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP})


class StagedFile:
    """A context that holds one temporary file; leaving it removes what was not put in its place.

    Raises OSError throughout. Used by one thread.
    """

    def __init__(self, root: Path, path: str) -> None:
        self._root = root
        self._folder, _, self._name = path.rpartition("/")
        self._token = secrets.token_hex(16)
        self._temporaries: int | None = None
        self._is_staged = False

    def __enter__(self) -> "StagedFile":
        self._temporaries = make_folder(self._root, TEMPORARIES)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        folder = self._entered()
        try:
            if self._is_staged:
                os.unlink(self._token, dir_fd=folder)
        except FileNotFoundError:
            pass  # An interrupt came between the rename and the note of it.
        finally:
            self._temporaries = None
            os.close(folder)

    def write(self, blocks: Iterable[bytes | memoryview]) -> None:
        """Write the whole content and force it to the disk; blocks are read one by one."""
        self._is_staged = True
        descriptor = os.open(self._token, _FLAGS, _MODE, dir_fd=self._entered())
        with os.fdopen(descriptor, "wb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(descriptor)

    def put(self) -> None:
        """Rename the file to its place, over what is there."""
        target = make_folder(self._root, self._folder)
        try:
            os.replace(self._token, self._name, src_dir_fd=self._entered(), dst_dir_fd=target)
            self._is_staged = False
            os.fsync(target)
        finally:
            os.close(target)

    def put_if_absent(self) -> bool:
        """Put the file in its place unless something is there; tells whether it did."""
        target = make_folder(self._root, self._folder)
        try:
            is_put = self._link(target)
            if is_put:
                os.fsync(target)
        finally:
            os.close(target)
        return is_put

    def _link(self, target: int) -> bool:
        try:
            # A link to a name that exists fails everywhere, NFS included.
            os.link(self._token, self._name, src_dir_fd=self._entered(), dst_dir_fd=target)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _LINKS_UNSUPPORTED:
                raise
            return self._rename(target)
        return True

    def _rename(self, target: int) -> bool:
        code = rename_noreplace(self._token, self._name, folders=(self._entered(), target))
        if code == errno.EEXIST:
            return False
        if code in RENAME_UNSUPPORTED:
            raise OSError(None, "its file system has neither hard links nor exclusive renames")
        if code:
            raise OSError(code, os.strerror(code))
        self._is_staged = False
        return True

    def _entered(self) -> int:
        if self._temporaries is None:
            raise RuntimeError("StagedFile is used outside its context; this is a bug")
        return self._temporaries
