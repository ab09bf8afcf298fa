"""Reserves an output path for one process and clears what a killed one left beside it.

Knows nothing of what is written there.
"""

import fcntl
import os
import re
import shutil
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed


class OutputLock:
    """A lock file `.<name>.lock` beside the output; the kernel drops the lock with the process."""

    def __init__(self, output: Path) -> None:
        self._output = output
        self._path = output.parent / f".{output.name}.lock"
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock.

        Raises:
            UsageError: another process is writing to the same output.
            RunFailedError: the directory cannot be written to.
        """
        with os_errors_as_run_failed("write", self._path):
            while self._descriptor is None:
                self._descriptor = self._try_once()

    def release(self) -> None:
        """Remove the lock file and drop the lock; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        try:
            # Removed while locked: a process that opened it before sees that it is not current.
            self._path.unlink(missing_ok=True)
        except OSError:
            pass  # An unlocked lock file hinders nobody; the next run removes it.
        finally:
            os.close(descriptor)

    def _try_once(self) -> int | None:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._path, flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            raise UsageError(
                f"{self._output}: another process is writing to this path; wait for it to end, or "
                "choose another path"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        if self._is_current(descriptor):
            return descriptor
        os.close(descriptor)
        return None

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self._path.lstat())
        except FileNotFoundError:
            return False


def partial_path(output: Path, token: str) -> Path:
    """Return the sibling directory in which `output` is built; `token` is 16 hex digits."""
    return output.parent / f".{output.name}.{token}.partial"


def remove_stale_partials(output: Path) -> None:
    """Remove directories left by killed processes; the caller holds the lock of `output`."""
    pattern = re.compile(rf"\.{re.escape(output.name)}\.[0-9a-f]{{16}}\.partial")
    for path in output.parent.iterdir():
        if pattern.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True)
