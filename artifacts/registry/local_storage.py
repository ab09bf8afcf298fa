"""A registry's files in a directory. Knows nothing of what is in them.

Links below the root are never followed; a file is in its place as a whole or not at all.
"""

import errno
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infinity_v3.artifacts.digest import open_beneath, sha256_of
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.names import path_problem
from infinity_v3.artifacts.os_errors import run_failed
from infinity_v3.artifacts.registry.copying import blocks_of, copy_out, rest_of
from infinity_v3.artifacts.registry.file_lock import FileLock, LockTimes
from infinity_v3.artifacts.registry.folders import open_folder
from infinity_v3.artifacts.registry.staged_file import TEMPORARIES, StagedFile
from infinity_v3.artifacts.registry.storage import MAX_READ_BYTES

_STALE_AFTER_S = 3600.0
"""A temporary file that was not written to for that long has no living writer."""
_HIDDEN = "."
"""First character of the folders that hold temporary and lock files; names never begin so."""


class LocalStorage:
    """`RegistryStorage` on a directory, which may itself be reached through a link.

    Files get mode 0644 and folders 0755, less the umask.
    """

    def __init__(self, root: Path, *, lock_times: LockTimes | None = None) -> None:
        self._root = root.absolute()
        self._lock_times = lock_times or LockTimes()

    @property
    def location(self) -> str:
        return str(self._root)

    @property
    def is_local(self) -> bool:
        return True

    @property
    def has_conditional_writes(self) -> bool:
        return True

    def read(self, path: str) -> bytes | None:
        with self._opened(path) as descriptor:
            if descriptor is None:
                return None
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_READ_BYTES + 1)
        if len(data) > MAX_READ_BYTES:
            raise RefusedError(
                f"{self._root / path}: expected at most {MAX_READ_BYTES} bytes, found more"
            )
        return data

    def size(self, path: str) -> int | None:
        status = self._status(path)
        return None if status is None else status.st_size

    def modified_s(self, path: str) -> float | None:
        status = self._status(path)
        return None if status is None else status.st_mtime

    def list(self, folder: str) -> tuple[str, ...]:
        self._check(folder or "names")
        with self._failures("list", folder):
            try:
                descriptor = open_folder(self._root, folder)
            except FileNotFoundError:
                return ()
            try:
                with os.scandir(descriptor) as entries:
                    names = [entry.name for entry in entries]
            finally:
                os.close(descriptor)
        return tuple(sorted(name for name in names if not name.startswith(_HIDDEN)))

    def create(self, path: str, data: bytes) -> bool:
        if self.size(path) is not None:
            return False
        with self._failures("write", path), StagedFile(self._root, path) as file:
            file.write([data])
            return file.put_if_absent()

    def replace(self, path: str, data: bytes) -> None:
        self._check(path)
        with self._failures("write", path), StagedFile(self._root, path) as file:
            file.write([data])
            file.put()

    def delete(self, path: str) -> None:
        self._check(path)
        folder, _, name = path.rpartition("/")
        with self._failures("remove", path):
            try:
                descriptor = open_folder(self._root, folder)
            except FileNotFoundError:
                return
            try:
                os.unlink(name, dir_fd=descriptor)
                os.fsync(descriptor)
            except FileNotFoundError:
                pass
            finally:
                os.close(descriptor)

    def upload(self, path: str, source: Path) -> None:
        self._check(path)
        with self._failures("write", path), StagedFile(self._root, path) as file:
            file.write(blocks_of(source))
            file.put()

    def download(self, path: str, target: Path) -> str | None:
        with self._opened(path) as descriptor:
            if descriptor is None:
                return None
            return copy_out(rest_of(descriptor), target)

    def digest(self, path: str) -> str | None:
        with self._opened(path) as descriptor:
            return None if descriptor is None else sha256_of(descriptor)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        self._check(name)
        lock = FileLock(self._root, name, self._lock_times)
        with self._failures("lock", name):
            try:
                lock.acquire()
            except BaseException:
                # An interrupt may have come behind the last step.
                lock.release()
                raise
        try:
            yield
        finally:
            with self._failures("unlock", name):
                lock.release()

    def remove_stale_temporaries(self, older_than_s: float) -> int:
        oldest_s = time.time() - max(older_than_s, _STALE_AFTER_S)
        num_removed = 0
        with self._failures("remove", TEMPORARIES):
            try:
                folder = open_folder(self._root, TEMPORARIES)
            except FileNotFoundError:
                return 0
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        num_removed += _remove_if_older(folder, entry.name, oldest_s)
            finally:
                os.close(folder)
        return num_removed

    def _check(self, path: str) -> None:
        """Refuse paths that leave the root; all names were checked before, this is a second net."""
        problem = path_problem(path)
        if problem is not None or path.startswith(_HIDDEN):
            raise RefusedError(
                f"{self._root}: {path!a}: expected a path of the registry's own files, found "
                f"{problem or 'a hidden one'}"
            )

    @contextmanager
    def _opened(self, path: str) -> Iterator[int | None]:
        """Open a regular file for reading; None where there is none or a folder."""
        self._check(path)
        with self._failures("read", path):
            try:
                descriptor = open_beneath(self._root, path)
            except FileNotFoundError:
                yield None
                return
            try:
                mode = os.fstat(descriptor).st_mode
                if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
                    raise self._not_regular(path)
                yield descriptor if stat.S_ISREG(mode) else None
            finally:
                os.close(descriptor)

    def _status(self, path: str) -> os.stat_result | None:
        with self._opened(path) as descriptor:
            return None if descriptor is None else os.fstat(descriptor)

    @contextmanager
    def _failures(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR, errno.EISDIR):
                raise self._not_regular(path) from error
            raise run_failed(action, self._root / path, error) from error

    def _not_regular(self, path: str) -> RefusedError:
        return RefusedError(
            f"{self._root / path}: expected regular files in folders, found a link or another kind "
            "of file there or above; a registry holds no links"
        )


def _remove_if_older(folder: int, name: str, oldest_s: float) -> bool:
    try:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime >= oldest_s:
            return False
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return False  # Its writer was done with it.
    return True
