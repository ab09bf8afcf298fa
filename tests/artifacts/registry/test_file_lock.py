"""Locks of names: living owners are waited for, dead ones replaced, by one process only."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.registry.file_lock import LockTimes, _Holder
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.owner import Owner, current_owner
from infinity_v3.artifacts.registry.records import encode_record

HASTY = LockTimes(refresh_s=0.05, stale_after_s=0.4, give_up_after_s=0.2)
PATIENT = replace(HASTY, give_up_after_s=30)

HOLDER = """
import sys, time
from pathlib import Path
from infinity_v3.artifacts.registry.local_storage import LocalStorage
with LocalStorage(Path(sys.argv[1])).lock("name"):
    print("held", flush=True)
    time.sleep(60)
"""
COUNTER = """
import sys
from pathlib import Path
from infinity_v3.artifacts.registry.local_storage import LocalStorage
storage, counter = LocalStorage(Path(sys.argv[1])), Path(sys.argv[2])
for _ in range(15):
    with storage.lock("name"):
        counter.write_text(str(int(counter.read_text()) + 1))
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "registry"


def lock_file(root: Path) -> Path:
    return root / ".locks/name.lock"


def held_by(root: Path, owner: Owner) -> None:
    lock_file(root).parent.mkdir(parents=True, exist_ok=True)
    lock_file(root).write_bytes(encode_record(_Holder(owner=owner, token="t"), "lock"))


@contextmanager
def holding_process(root: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLDER, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_lock_is_a_file_with_its_owner(root: Path) -> None:
    with LocalStorage(root).lock("name"):
        data = lock_file(root).read_text()
        assert f'"pid":{os.getpid()}' in data
        assert f'"host":"{os.uname().nodename}"' in data
    assert not lock_file(root).exists()


def test_locks_of_two_names_are_two(root: Path) -> None:
    storage = LocalStorage(root, lock_times=HASTY)
    with storage.lock("name"), storage.lock("other"):
        assert storage.list("") == ()


def test_a_living_owner_is_named_in_the_end(root: Path) -> None:
    with holding_process(root) as process:
        found = rf"process {process.pid} on .* has held this lock for more than 0\.2 s"
        lock = LocalStorage(root, lock_times=HASTY).lock("name")
        with pytest.raises(RunFailedError, match=found), lock:
            pytest.fail("two held one lock")


def test_an_owner_of_this_host_that_is_held_still_is_not_dead(root: Path) -> None:
    with holding_process(root) as process:
        process.send_signal(signal.SIGSTOP)
        times = LockTimes(refresh_s=0.05, stale_after_s=0.1, give_up_after_s=0.5)
        lock = LocalStorage(root, lock_times=times).lock("name")
        with pytest.raises(RunFailedError, match=f"process {process.pid} on"), lock:
            pytest.fail("two held one lock")


@pytest.mark.parametrize("is_reaped", [True, False])
def test_a_killed_owner_is_replaced_at_once(root: Path, is_reaped: bool) -> None:
    with holding_process(root) as process:
        process.send_signal(signal.SIGKILL)
        if is_reaped:
            process.wait()
        assert lock_file(root).exists()
        times = LockTimes(stale_after_s=60, give_up_after_s=30)
        with LocalStorage(root, lock_times=times).lock("name"):
            assert f'"pid":{os.getpid()}' in lock_file(root).read_text()
        assert not lock_file(root).exists()


def test_a_later_process_of_the_same_id_is_not_the_owner(root: Path) -> None:
    held_by(root, replace(current_owner(), started="1"))
    with LocalStorage(root, lock_times=HASTY).lock("name"):
        pass


@pytest.mark.parametrize("change", [{"host": "elsewhere"}, {"boot": "another"}])
def test_an_owner_elsewhere_is_dead_when_it_does_not_refresh(
    root: Path, change: dict[str, str]
) -> None:
    held_by(root, replace(current_owner(), pid=2**22 + 1, **change))
    with LocalStorage(root, lock_times=PATIENT).lock("name"):
        assert f'"pid":{os.getpid()}' in lock_file(root).read_text()


def test_an_owner_elsewhere_lives_while_it_refreshes(root: Path) -> None:
    held_by(root, replace(current_owner(), host="elsewhere"))
    is_done = threading.Event()

    def refresh() -> None:
        while not is_done.wait(0.05):
            os.utime(lock_file(root))

    refresher = threading.Thread(target=refresh)
    refresher.start()
    times = replace(HASTY, give_up_after_s=1.0)
    try:
        lock = LocalStorage(root, lock_times=times).lock("name")
        with pytest.raises(RunFailedError, match="on elsewhere has held"), lock:
            pytest.fail("two held one lock")
    finally:
        is_done.set()
        refresher.join()


def test_an_owner_refreshes(root: Path) -> None:
    with LocalStorage(root, lock_times=HASTY).lock("name"):
        before_ns = lock_file(root).stat().st_mtime_ns
        end_s = time.monotonic() + 10
        while lock_file(root).stat().st_mtime_ns == before_ns and time.monotonic() < end_s:
            time.sleep(0.01)
        assert lock_file(root).stat().st_mtime_ns > before_ns


def test_a_torn_lock_file_is_replaced(root: Path) -> None:
    """As a power cut may leave one."""
    lock_file(root).parent.mkdir(parents=True)
    lock_file(root).write_bytes(b"")
    with LocalStorage(root, lock_times=PATIENT).lock("name"):
        pass


def test_what_was_taken_over_is_not_released(root: Path) -> None:
    other = replace(current_owner(), host="elsewhere")
    with LocalStorage(root, lock_times=HASTY).lock("name"):
        held_by(root, other)
    assert '"host":"elsewhere"' in lock_file(root).read_text()


def test_many_threads_take_turns_and_one_takes_over(root: Path) -> None:
    for _ in range(5):
        held_by(root, replace(current_owner(), started="1"))
        inside = [0]
        most = [0]

        def work(inside: list[int] = inside, most: list[int] = most) -> None:
            with LocalStorage(root).lock("name"):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                time.sleep(0.001)
                inside[0] -= 1

        threads = [threading.Thread(target=work) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == [1]


def test_many_processes_take_turns(root: Path, tmp_path: Path) -> None:
    counter = tmp_path / "counter"
    counter.write_text("0")
    held_by(root, replace(current_owner(), started="1"))
    command = [sys.executable, "-c", COUNTER, str(root), str(counter)]
    processes = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait(60) for process in processes] == [0, 0, 0]
    assert counter.read_text() == "45"
