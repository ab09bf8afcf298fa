"""A scratch folder goes, and with it whoever would go on writing into it."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from infinity_v3.compiler.scratch import TEMPORARY, scratch_folder

WRITE_ON = 'while :; do : > "$0/$$.$((n += 1))"; done'


class StopError(Exception):
    """Ends a body early."""


@contextmanager
def orphan(temporary: Path, target: Path) -> Iterator[int]:
    """A process that nobody waits for and that writes file after file; its number."""
    started = subprocess.run(
        ["/bin/sh", "-c", '/bin/sh -c "$1" "$0" >/dev/null 2>&1 & echo $!', target, WRITE_ON],
        env=os.environ | {TEMPORARY: str(temporary)},
        capture_output=True,
        text=True,
        check=True,
    )
    number = int(started.stdout)
    try:
        yield number
    finally:
        with suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def is_running(number: int) -> bool:
    try:
        state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_for_files(folder: Path) -> None:
    deadline_s = time.monotonic() + 10
    while not any(folder.iterdir()):
        assert time.monotonic() < deadline_s, "nothing was written"
        time.sleep(0.01)


def test_it_is_removed_after_success_and_failure(tmp_path: Path) -> None:
    with scratch_folder(tmp_path / "scratch") as scratch:
        (scratch / "file").write_text("")
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(StopError), scratch_folder(tmp_path / "scratch") as scratch:
        raise StopError
    assert list(tmp_path.iterdir()) == []


def test_the_path_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with scratch_folder(Path("scratch")) as scratch:
        assert scratch == tmp_path / "scratch"


def test_a_failure_ends_whoever_still_writes_there(tmp_path: Path) -> None:
    folder = tmp_path / "scratch"

    def interrupt(stack: ExitStack, numbers: list[int]) -> None:
        with scratch_folder(folder):
            numbers.append(stack.enter_context(orphan(folder, folder)))
            wait_for_files(folder)
            raise KeyboardInterrupt

    numbers: list[int] = []
    with ExitStack() as stack:
        with pytest.raises(KeyboardInterrupt):
            interrupt(stack, numbers)
        assert [number for number in numbers if is_running(number)] == []
        assert list(tmp_path.iterdir()) == []


def test_processes_with_another_folder_are_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "scratch-2"  # its name starts alike
    other.mkdir()
    with orphan(other, other) as number:
        wait_for_files(other)
        with pytest.raises(StopError), scratch_folder(tmp_path / "scratch"):
            raise StopError
        assert is_running(number)
