"""Turns failures of the operating system into one sentence. Knows nothing of what was written."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infinity_v3.artifacts.errors import RunFailedError

DISK_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_REMEDIES = {
    errno.ENOSPC: "free some space and run again",
    errno.EDQUOT: "free some of your quota and run again",
    errno.EFBIG: "raise the file size limit (ulimit -f) and run again",
    errno.EACCES: "check the owner and mode of the directory",
    errno.EPERM: "check the owner and mode of the directory",
    errno.EROFS: "choose a path on a writable file system",
}


def run_failed(action: str, path: Path, error: OSError) -> RunFailedError:
    """Make the error for a failed system call.

    Args:
        action: what was tried, e.g. "write".
        path: what it was tried on, unless the error itself names a file.
        error: the failure.
    """
    # Of a copy, the second name is the one written to.
    filename = error.filename2 or error.filename
    # Names relative to a descriptor say too little.
    is_whole = isinstance(filename, str) and Path(filename).is_absolute()
    named = filename if is_whole else str(path)
    reason = os.strerror(error.errno).lower() if error.errno else str(error)
    remedy = _REMEDIES.get(error.errno or 0)
    return RunFailedError(f"cannot {action} {named}: {reason}" + (f"; {remedy}" if remedy else ""))


@contextmanager
def os_errors_as_run_failed(action: str, path: Path) -> Iterator[None]:
    """Let an OSError of the body leave as RunFailedError."""
    try:
        yield
    except OSError as error:
        raise run_failed(action, path, error) from error
