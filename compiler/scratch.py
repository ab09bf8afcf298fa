"""A folder for what a build step writes meanwhile; neither it nor its compilers outlive the step.

Knows no compiler: a process belongs to the folder whose name its variable TMPDIR holds.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TEMPORARY = "TMPDIR"
"""The variable that tells a compiler where its temporary files go."""
END_WITHIN_S = 5.0
_POLL_S = 0.01


@contextmanager
def scratch_folder(path: Path) -> Iterator[Path]:
    """Make a folder, yield its absolute path, and remove it whatever happens.

    A process that is started meanwhile with the folder as its `TMPDIR` is ended before the folder
    goes, should the body fail: whoever waited for a compiler's driver kills the driver alone, and
    the compiler proper would go on writing.
    """
    folder = path.absolute()
    folder.mkdir()
    try:
        yield folder
    except BaseException:
        _end_processes(folder)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _end_processes(folder: Path) -> None:
    mark = b"\0" + os.fsencode(f"{TEMPORARY}={folder}") + b"\0"
    deadline_s = time.monotonic() + END_WITHIN_S
    # Again until there are none: one may have been about to start another.
    while (running := _marked_processes(mark)) and time.monotonic() < deadline_s:
        for number in running:
            with suppress(OSError):  # it has ended by itself
                os.kill(number, signal.SIGKILL)
        time.sleep(_POLL_S)


def _marked_processes(mark: bytes) -> list[int]:
    entries = [entry for entry in Path("/proc").iterdir() if entry.name.isdecimal()]
    return [int(entry.name) for entry in entries if mark in b"\0" + _environment(entry)]


def _environment(entry: Path) -> bytes:
    try:
        return (entry / "environ").read_bytes()
    except OSError:  # another user's, or it has ended
        return b""
