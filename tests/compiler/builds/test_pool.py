"""Several jobs of several commands: limits, order, failures, and how children end."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.compiler.builds.pool import Command, Ended, Job, JobPool

WAIT_S = 30


class Recorder:
    """A watcher that keeps what it is told, and may be told to raise."""

    def __init__(self, on_tick: Callable[[], None] = lambda: None) -> None:
        self.events: list[tuple[str, int, str]] = []
        self._on_tick = on_tick

    def began(self, job: int, step: str) -> None:
        self.events.append(("began", job, step))

    def said(self, job: int, line: str) -> None:
        self.events.append(("said", job, line))

    def ended(self, job: int, result: object) -> None:
        self.events.append(("ended", job, str(result)))

    def tick(self) -> None:
        self._on_tick()


def shell(script: str) -> Command:
    return Command(step="run", arguments=("/bin/sh", "-c", script))


def job_of(*scripts: str) -> Job[list[Ended]]:
    """Run scripts one after the other, whatever their exit codes."""
    ended = []
    for script in scripts:
        ended.append((yield shell(script)))
    return ended


def pool_of(
    jobs: Sequence[Job[list[Ended]]], *, limit: int = 2, recorder: Recorder | None = None
) -> JobPool[list[Ended]]:
    return JobPool(
        jobs, limit=limit, environment={"PATH": os.environ["PATH"]}, watcher=recorder or Recorder()
    )


def run_all(pool: JobPool[list[Ended]]) -> dict[int, list[Ended]]:
    pool.run(stops_after=lambda _: False)
    return pool.results


def never(_result: object) -> bool:
    return False


def codes(results: dict[int, list[Ended]]) -> dict[int, list[int]]:
    return {job: [ended.exit_code for ended in found] for job, found in results.items()}


def is_running(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    return re.search(r"^State:\s+Z", status, re.MULTILINE) is None


def wait_for(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not claim():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.02)


def test_commands_of_a_job_follow_each_other_and_their_ends_are_known() -> None:
    recorder = Recorder()
    results = run_all(
        pool_of([job_of("echo one >&2; printf two >&2", "exit 3")], recorder=recorder)
    )
    assert results == {
        0: [Ended(exit_code=0, lines=("one", "two")), Ended(exit_code=3, lines=())],
    }
    assert recorder.events[:4] == [
        ("began", 0, "run"),
        ("said", 0, "one"),
        ("said", 0, "two"),
        ("began", 0, "run"),
    ]
    assert recorder.events[4][:2] == ("ended", 0)


def test_a_job_without_commands_is_over_at_once() -> None:
    assert run_all(pool_of([job_of(), job_of()])) == {0: [], 1: []}


def test_no_job_stops_another() -> None:
    results = run_all(pool_of([job_of("exit 7"), job_of("kill -9 $$"), job_of("true", "true")]))
    assert codes(results) == {0: [7], 1: [-9], 2: [0, 0]}


def test_as_many_at_a_time_as_allowed_and_no_more(tmp_path: Path) -> None:
    # Each waits until another runs beside it, and counts those that do.
    script = (
        f"cd {tmp_path}; touch run.$$; n=0; "
        "while [ $n -lt 2 ]; do n=$(ls run.* | wc -l); sleep 0.02; done; "
        "ls run.* | wc -l > count.$$; sleep 0.1; rm run.$$"
    )
    results = run_all(pool_of([job_of(script) for _ in range(4)], limit=2))
    assert codes(results) == {job: [0] for job in range(4)}
    counts = [int(path.read_text()) for path in tmp_path.glob("count.*")]
    assert len(counts) == 4
    assert max(counts) == 2


def test_one_at_a_time_keeps_the_order(tmp_path: Path) -> None:
    log = tmp_path / "log"
    run_all(pool_of([job_of(f"echo {number} >> {log}") for number in range(4)], limit=1))
    assert log.read_text().split() == ["0", "1", "2", "3"]


def test_a_stop_ends_what_runs_and_begins_nothing_more(tmp_path: Path) -> None:
    started, cleaned, third = (tmp_path / name for name in ("started", "cleaned", "third"))
    long = f"trap 'touch {cleaned}; exit 143' TERM; touch {started}; while :; do sleep 0.05; done"
    quick = f"while [ ! -e {started} ]; do sleep 0.02; done; exit 3"
    pool = pool_of([job_of(quick), job_of(long), job_of(f"touch {third}")])
    pool.run(stops_after=lambda ended: ended[-1].exit_code != 0)
    assert codes(pool.results) == {0: [3]}
    assert cleaned.exists()
    assert not third.exists()


def test_an_interrupt_ends_children_and_keeps_what_is_done(tmp_path: Path) -> None:
    pid, cleaned = tmp_path / "pid", tmp_path / "cleaned"
    long = (
        f"trap 'sleep 0.2; touch {cleaned}; exit 143' TERM; echo $$ > {pid}.new; "
        f"mv {pid}.new {pid}; while :; do sleep 0.05; done"
    )

    def interrupt() -> None:
        if pid.exists() and 0 in pool.results:
            raise KeyboardInterrupt

    pool = pool_of([job_of("true"), job_of(long), job_of("true")], recorder=Recorder(interrupt))
    with pytest.raises(KeyboardInterrupt):
        pool.run(stops_after=never)
    assert cleaned.exists(), "the child was not given the time to clean up"
    assert not is_running(int(pid.read_text()))
    assert codes(pool.results)[0] == [0]
    assert 1 not in pool.results


def test_who_does_not_end_is_killed_with_what_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infinity_v3.compiler.builds.pool.END_WITHIN_S", 0.2)
    pid = tmp_path / "pid"
    deaf = f"trap '' TERM; (sleep 600 & echo $! > {pid}.new; mv {pid}.new {pid}; wait); sleep 600"

    def interrupt() -> None:
        if pid.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool_of([job_of(deaf)], recorder=Recorder(interrupt)).run(stops_after=never)
    wait_for(lambda: not is_running(int(pid.read_text())))


def test_a_child_hears_of_the_death_of_its_parent(tmp_path: Path) -> None:
    pid, heard = tmp_path / "pid", tmp_path / "heard"
    script = (
        f"trap 'touch {heard}; exit' TERM; echo $$ > {pid}.new; mv {pid}.new {pid}; "
        "while :; do sleep 0.05; done"
    )
    code = (
        "import sys\n"
        "from infinity_v3.compiler.builds.pool import Command, JobPool\n"
        "from infinity_v3.compiler.builds.board import SilentBoard\n"
        "def job():\n"
        "    yield Command(step='run', arguments=('/bin/sh', '-c', sys.argv[1]))\n"
        "pool = JobPool([job()], limit=1, environment={}, watcher=SilentBoard())\n"
        "pool.run(stops_after=lambda _: False)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, script])
    try:
        wait_for(pid.exists)
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait(WAIT_S)
    wait_for(heard.exists)
    wait_for(lambda: not is_running(int(pid.read_text())))


def test_a_grandchild_that_holds_the_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    results = run_all(pool_of([job_of(f"sleep 600 & echo $! > {pid}; echo said >&2")]))
    assert results == {0: [Ended(exit_code=0, lines=("said",))]}
    wait_for(lambda: not is_running(int(pid.read_text())))


def test_much_is_said_and_little_is_kept() -> None:
    script = "i=0; while [ $i -lt 3000 ]; do echo line $i >&2; i=$((i+1)); done"
    recorder = Recorder()
    (ended,) = run_all(pool_of([job_of(script)], recorder=recorder))[0]
    said = [line for kind, _, line in recorder.events if kind == "said"]
    assert said == [f"line {number}" for number in range(3000)]
    assert ended.lines == tuple(said[-40:])


def test_bytes_that_are_no_text() -> None:
    (ended,) = run_all(pool_of([job_of(r"printf '\377\n' >&2")]))[0]
    assert ended.lines == ("�",)


def test_a_program_that_is_not_there() -> None:
    def job() -> Job[list[Ended]]:
        yield Command(step="run", arguments=("/no/such/program",))
        return []

    with pytest.raises(RunFailedError, match=r"/no/such/program cannot be started: .*No such file"):
        pool_of([job()]).run(stops_after=never)


@pytest.fixture(autouse=True)
def no_descriptor_is_left() -> Iterator[None]:
    before = len(list(Path("/proc/self/fd").iterdir()))
    yield
    assert len(list(Path("/proc/self/fd").iterdir())) == before
