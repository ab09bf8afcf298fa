"""Files that keep gc and pushes apart: each says that its process is at work.

A push may count on files that nothing names yet, and gc removes just those. Both first write a
lease and then look for leases of the other kind, so that at least one of two sees the other: a push
steps back for gc, and gc waits for pushes that were there before it. Knows nothing of blobs.
"""

import math
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.owner import Owner, current_owner
from infinity_v3.artifacts.registry.records import decode_record, encode_record
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import shown

LIFETIME_S = 3600
"""A lease that was not refreshed for that long belongs to a dead process."""
REFRESH_S = 60.0
GIVE_UP_AFTER_S = 60.0

_LOOK_EVERY_S = 0.2
_SUFFIX = ".json"


class Work(str, Enum):
    """What a process is doing to a registry."""

    PUSH = "push"
    GC = "gc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The content of one file; times are whole seconds since the epoch."""

    work: Work
    owner: Owner
    created: int
    refreshed: int

    def is_active(self, now_s: float) -> bool:
        """Tell whether its process may still be at work."""
        return now_s - self.refreshed < LIFETIME_S and not self.owner.is_gone()


@contextmanager
def push_lease(
    storage: RegistryStorage, *, give_up_after_s: float = GIVE_UP_AFTER_S
) -> Iterator[None]:
    """Keep gc away while the context lasts; waits for one that is under way.

    Raises:
        RunFailedError: it took too long; names its process.
    """
    end_s = time.monotonic() + give_up_after_s
    while True:
        path = _write_new(storage, Work.PUSH)
        try:
            other = _first_active(storage, Work.GC)
            if other is None:
                with _refreshing(storage, path):
                    yield
                return
        finally:
            storage.delete(path)
        _wait(storage, other, end_s)


@contextmanager
def gc_lease(
    storage: RegistryStorage, *, give_up_after_s: float = GIVE_UP_AFTER_S
) -> Iterator[None]:
    """Keep new pushes away while the context lasts; waits for those that are under way.

    Raises:
        RunFailedError: one took too long; names its process.
    """
    end_s = time.monotonic() + give_up_after_s
    path = _write_new(storage, Work.GC)
    try:
        with _refreshing(storage, path):
            while (other := _first_active(storage, Work.PUSH)) is not None:
                _wait(storage, other, end_s)
            yield
    finally:
        storage.delete(path)


def unreadable_leases(storage: RegistryStorage) -> tuple[str, ...]:
    """Paths of files that are no leases of this release; removes none."""
    files = [f"{paths.LEASES}/{name}" for name in storage.list(paths.LEASES)]
    return tuple(path for path in files if _is_unreadable(storage, path))


def active_leases(storage: RegistryStorage) -> tuple[Lease, ...]:
    """Read the leases of processes that may be at work; removes those of dead ones."""
    found: list[Lease] = []
    for name in storage.list(paths.LEASES):
        path = f"{paths.LEASES}/{name}"
        lease = _read(storage, path)
        if lease is None:
            continue
        if lease.is_active(time.time()):
            found.append(lease)
        else:
            storage.delete(path)
    return tuple(found)


def _first_active(storage: RegistryStorage, work: Work) -> Lease | None:
    return next((lease for lease in active_leases(storage) if lease.work is work), None)


def _write_new(storage: RegistryStorage, work: Work) -> str:
    now_s = int(time.time())
    lease = Lease(work=work, owner=current_owner(), created=now_s, refreshed=now_s)
    path = f"{paths.LEASES}/{secrets.token_hex(16)}{_SUFFIX}"
    storage.replace(path, encode_record(lease, path))
    return path


def _read(storage: RegistryStorage, path: str) -> Lease | None:
    """None = it was removed meanwhile, or is unreadable and as old as a dead one's.

    Raises:
        RefusedError: it is unreadable and young: what its process does cannot be known.
    """
    data = storage.read(path)
    if data is None:
        return None
    try:
        return decode_record(data, Lease, path)
    except RefusedError:
        left_s = LIFETIME_S - (time.time() - (storage.modified_s(path) or 0.0))
        if left_s > 0:
            raise _unreadable(storage, path, left_s) from None
        storage.delete(path)
        return None


def _unreadable(storage: RegistryStorage, path: str, left_s: float) -> RefusedError:
    return RefusedError(
        f"{shown(storage, path)}: expected a lease, found something else, which counts for "
        f"{math.ceil(left_s / 60)} min more; remove it where no other push or gc is under way"
    )


def _is_unreadable(storage: RegistryStorage, path: str) -> bool:
    try:
        data = storage.read(path)
        return data is not None and decode_record(data, Lease, path) is None
    except RefusedError:
        return True


@contextmanager
def _refreshing(storage: RegistryStorage, path: str) -> Iterator[None]:
    is_done = threading.Event()

    def refresh() -> None:
        while not is_done.wait(REFRESH_S):
            try:
                lease = _read(storage, path)
                if lease is None:
                    return
                renewed = replace(lease, refreshed=int(time.time()))
                storage.replace(path, encode_record(renewed, path))
            except RunFailedError:
                pass  # The place is out of reach for a while; the next refresh may succeed.

    refresher = threading.Thread(target=refresh, daemon=True)
    refresher.start()
    try:
        yield
    finally:
        is_done.set()
        refresher.join()


def _wait(storage: RegistryStorage, other: Lease, end_s: float) -> None:
    if time.monotonic() > end_s:
        who = f"a {other.work.value} by {other.owner.text}"
        raise RunFailedError(
            f"{storage.location}: {who} has been under way for "
            f"{int(time.time()) - other.created} s; run again when it is done"
        )
    time.sleep(_LOOK_EVERY_S)
