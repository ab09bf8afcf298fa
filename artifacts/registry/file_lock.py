"""A lock that is a file with its owner in it, taken over from owners that died.

Knows nothing of what it protects.
"""

import fcntl
import os
import random
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.digest import open_beneath
from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.registry.folders import make_folder
from infinity_v3.artifacts.registry.owner import Owner, current_owner
from infinity_v3.artifacts.registry.records import decode_record, encode_record
from infinity_v3.artifacts.registry.staged_file import StagedFile

LOCKS = ".locks"
"""The folder below the root in which lock files lie."""

_GUARD = ".guard"
_MAX_OWNER_BYTES = 4096
_FIRST_WAIT_S = 0.005
_LONGEST_WAIT_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LockTimes:
    """How long a lock waits for what.

    Attributes:
        refresh_s: between two refreshes of a lock file by its owner.
        stale_after_s: an owner elsewhere counts as dead after that long without a refresh, by the
            clock of the one who waits.
        give_up_after_s: a living owner is waited for that long.
    """

    refresh_s: float = 5.0
    stale_after_s: float = 30.0
    give_up_after_s: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Holder:
    """The content of a lock file; `token` tells two locks of one process apart."""

    owner: Owner
    token: str


@dataclass(frozen=True, slots=True)
class _Seen:
    """A lock file as found: its bytes and when it was refreshed, by the file system's clock."""

    data: bytes
    refreshed_ns: int

    @property
    def owner(self) -> Owner | None:
        """None = the file was not written to the end before a power cut."""
        try:
            return decode_record(self.data, _Holder, "lock").owner
        except RefusedError:
            return None


class FileLock:
    """One attempt to hold a lock; used once, by one thread.

    Raises OSError where the folder cannot be written to.
    """

    def __init__(self, root: Path, name: str, times: LockTimes) -> None:
        self._root = root
        self._path = f"{LOCKS}/{name}.lock"
        self._times = times
        holder = _Holder(owner=current_owner(), token=secrets.token_hex(16))
        self._data = encode_record(holder, "lock")
        self._released = threading.Event()
        self._refresher = threading.Thread(target=self._refresh, daemon=True)

    def acquire(self) -> None:
        """Wait for the lock.

        Raises:
            RunFailedError: a living owner held it all the time.
        """
        end_s = time.monotonic() + self._times.give_up_after_s
        wait_s = _FIRST_WAIT_S
        watched, since_s = None, time.monotonic()
        while not self._create():
            seen = self._look()
            if seen != watched:
                watched, since_s = seen, time.monotonic()
            if seen is not None and self._is_dead(seen, since_s) and self._take_over(seen):
                break
            if seen is not None and time.monotonic() > end_s:
                raise self._held(seen)
            # At random, so that those who wait for one lock do not come all at once.
            time.sleep(wait_s * random.uniform(0.5, 1.0))
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        self._refresher.start()

    def release(self) -> None:
        """Give the lock up, if it was acquired and nobody has taken it over."""
        self._released.set()
        with self._guard():
            seen = self._look()
            if seen is not None and seen.data == self._data:
                (self._root / self._path).unlink(missing_ok=True)
        if self._refresher.is_alive():
            self._refresher.join()

    def _create(self) -> bool:
        with StagedFile(self._root, self._path) as file:
            file.write([self._data])
            return file.put_if_absent()

    def _look(self) -> _Seen | None:
        try:
            descriptor = open_beneath(self._root, self._path)
        except FileNotFoundError:
            return None
        try:
            refreshed_ns = os.fstat(descriptor).st_mtime_ns
            return _Seen(os.read(descriptor, _MAX_OWNER_BYTES), refreshed_ns)
        finally:
            os.close(descriptor)

    def _is_dead(self, seen: _Seen, since_s: float) -> bool:
        # A process that is held still does not refresh, and is not dead.
        if seen.owner is not None and seen.owner.is_known():
            return seen.owner.is_gone()
        return time.monotonic() - since_s > self._times.stale_after_s

    def _take_over(self, dead: _Seen) -> bool:
        """Replace the lock file, unless it is no longer the one that was found dead."""
        with self._guard():
            if self._look() != dead:
                return False
            with StagedFile(self._root, self._path) as file:
                file.write([self._data])
                file.put()
        return True

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Keep others from removing or replacing a lock file; the kernel drops it with a process.

        It is held for a moment only, whereas the lock itself is held by its file: that one names
        its owner, and holds where the kernel's locks do not reach.
        """
        folder = make_folder(self._root, LOCKS)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            descriptor = os.open(_GUARD, flags, 0o644, dir_fd=folder)
        finally:
            os.close(folder)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _refresh(self) -> None:
        while not self._released.wait(self._times.refresh_s):
            try:
                seen = self._look()
                if seen is None or seen.data != self._data:
                    return
                os.utime(self._root / self._path)
            except OSError:
                pass  # The next refresh may succeed; if none does, others see that.

    def _held(self, seen: _Seen) -> RunFailedError:
        owner = "an unknown process" if seen.owner is None else seen.owner.text
        return RunFailedError(
            f"{self._root / self._path}: {owner} has held this lock for more than "
            f"{self._times.give_up_after_s:g} s; wait for it to end and run again"
        )
