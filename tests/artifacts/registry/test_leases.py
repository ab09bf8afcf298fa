"""Pushes and gc keep out of each other's way, on every kind of storage."""

import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.leases import (
    LIFETIME_S,
    Lease,
    Work,
    active_leases,
    gc_lease,
    push_lease,
)
from infinity_v3.artifacts.registry.owner import current_owner
from infinity_v3.artifacts.registry.records import encode_record
from infinity_v3.artifacts.registry.storage import RegistryStorage


def write_lease(storage: RegistryStorage, lease: Lease) -> None:
    storage.replace(f"{paths.LEASES}/other.json", encode_record(lease, "other.json"))


def lease_of(work: Work, age_s: int = 0) -> Lease:
    now_s = int(time.time()) - age_s
    # Another host: that its process is gone cannot be known.
    owner = replace(current_owner(), host="elsewhere")
    return Lease(work=work, owner=owner, created=now_s, refreshed=now_s)


def ended_process() -> int:
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def test_a_lease_lasts_as_long_as_its_push(storage: RegistryStorage) -> None:
    with push_lease(storage), push_lease(storage):
        assert [lease.work for lease in active_leases(storage)] == [Work.PUSH, Work.PUSH]
        assert {lease.owner for lease in active_leases(storage)} == {current_owner()}
    assert active_leases(storage) == ()
    assert storage.list(paths.LEASES) == ()


def test_gc_waits_for_a_push_and_then_gives_up(storage: RegistryStorage) -> None:
    write_lease(storage, lease_of(Work.PUSH))
    found = r"a push by process \d+ on elsewhere has been under way for \d+ s; run again"
    with pytest.raises(RunFailedError, match=found), gc_lease(storage, give_up_after_s=0):
        pytest.fail("gc ran beside a push")
    # It took its own lease away, so that pushes go on.
    assert [lease.work for lease in active_leases(storage)] == [Work.PUSH]


def test_a_push_waits_for_gc_and_then_gives_up(storage: RegistryStorage) -> None:
    write_lease(storage, lease_of(Work.GC))
    with (
        pytest.raises(RunFailedError, match="a gc by process"),
        push_lease(storage, give_up_after_s=0),
    ):
        pytest.fail("a push ran beside gc")
    assert [lease.work for lease in active_leases(storage)] == [Work.GC]


def test_what_was_not_refreshed_for_long_counts_as_dead(storage: RegistryStorage) -> None:
    write_lease(storage, lease_of(Work.PUSH, age_s=LIFETIME_S + 1))
    with gc_lease(storage, give_up_after_s=0):
        assert [lease.work for lease in active_leases(storage)] == [Work.GC]
    assert storage.list(paths.LEASES) == ()


def test_a_killed_push_of_this_host_keeps_nobody_away(storage: RegistryStorage) -> None:
    lease = lease_of(Work.PUSH)
    write_lease(storage, replace(lease, owner=replace(current_owner(), pid=ended_process())))
    with gc_lease(storage, give_up_after_s=0):
        assert [lease.work for lease in active_leases(storage)] == [Work.GC]


def test_they_never_overlap(storage: RegistryStorage) -> None:
    """Two pushes and two runs of gc at a time: a push and gc are never both inside."""
    inside: list[Work] = []
    overlaps: list[tuple[Work, ...]] = []
    guard = threading.Lock()

    def work(kind: Work) -> None:
        lease = push_lease if kind is Work.PUSH else gc_lease
        for _ in range(3):
            with lease(storage):
                with guard:
                    inside.append(kind)
                    if len(set(inside)) > 1:
                        overlaps.append(tuple(inside))
                time.sleep(0.002)
                with guard:
                    inside.remove(kind)

    threads = [
        threading.Thread(target=work, args=[kind]) for kind in (Work.PUSH, Work.GC, Work.PUSH)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == []
    assert storage.list(paths.LEASES) == ()
