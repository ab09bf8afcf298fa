"""Runs the commands of several jobs as child processes, a given number at a time.

One thread, one loop. Knows nothing of models: a job is a generator that yields what to run next.
"""

import ctypes
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from infinity_v3.artifacts.errors import RunFailedError

TICK_S = 0.1
END_WITHIN_S = 30.0
"""How long a child may clean up before it is killed."""
KEPT_LINES = 40
_READ_BYTES = 1 << 16
_MAX_LINE_BYTES = 1 << 14
_PR_SET_PDEATHSIG = 1

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """One process to run; `step` says in a word what it does."""

    step: str
    arguments: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a process ended: its code, negative after a signal, and its last lines on stderr."""

    exit_code: int
    lines: tuple[str, ...]


Job = Generator[Command, Ended, T]
"""Yields commands, is sent how each ended, and returns its result. Raises nothing but bugs."""


class Watcher(Protocol):
    """Told what happens, always from the thread that called `run_jobs`."""

    def began(self, job: int, step: str) -> None:
        """A command of job number `job` was started."""

    def said(self, job: int, line: str) -> None:
        """It wrote a line to its stderr."""

    def ended(self, job: int, result: object) -> None:
        """The job is over; its result is shown as `str` has it."""

    def tick(self) -> None:
        """Some time has passed."""


class JobPool(Generic[T]):
    """Jobs, and the results of those that are over.

    `results` is filled while `run` is under way, so that what is done stays known when `run` is
    left by an exception: a signal's, mostly. All children are ended by then.
    """

    def __init__(
        self,
        jobs: Sequence[Job[T]],
        *,
        limit: int,
        environment: Mapping[str, str],
        watcher: Watcher,
    ) -> None:
        self.results: dict[int, T] = {}
        self._waiting = deque(enumerate(jobs))
        self._limit = limit
        self._environment = environment
        self._watcher = watcher
        self._running: dict[int, _Child] = {}
        self._jobs = dict(enumerate(jobs))

    def run(self, *, stops_after: Callable[[T], bool]) -> None:
        """Run the jobs in their order; returns when the last one is over.

        Args:
            stops_after: given each result, tells whether to start nothing more and to end what
                runs; jobs without a result have been left out.
        """
        selector = selectors.DefaultSelector()
        try:
            while self._waiting or self._running:
                self._fill(selector)
                for key, _ in selector.select(TICK_S if self._running else 0):
                    self._read(key.data)
                self._collect(selector)
                self._watcher.tick()
                if any(stops_after(result) for result in self.results.values()):
                    return
        finally:
            end_all([child.process for child in self._running.values()])
            for child in self._running.values():
                child.close(selector)
            selector.close()

    def _fill(self, selector: selectors.BaseSelector) -> None:
        while self._waiting and len(self._running) < self._limit:
            number, _ = self._waiting.popleft()
            self._go_on(number, None, selector)

    def _go_on(self, number: int, ended: Ended | None, selector: selectors.BaseSelector) -> None:
        """Let a job take its next step: a command, or the end."""
        job = self._jobs[number]
        try:
            command = next(job) if ended is None else job.send(ended)
        except StopIteration as end:
            self.results[number] = end.value
            self._watcher.ended(number, end.value)
            return
        child = _Child(number, command, self._environment)
        # Known before anything else can fail, so that nobody forgets to end it.
        self._running[number] = child
        selector.register(child.descriptor, selectors.EVENT_READ, child)
        self._watcher.began(number, command.step)

    def _read(self, child: "_Child") -> None:
        for line in child.read_lines():
            self._watcher.said(child.number, line)

    def _collect(self, selector: selectors.BaseSelector) -> None:
        """Pass on how children ended; what they started may hold the pipe open, so not its end."""
        for child in list(self._running.values()):
            exit_code = child.process.poll()
            if exit_code is None:
                continue
            self._read(child)
            for line in child.rest():
                self._watcher.said(child.number, line)
            child.close(selector)
            del self._running[child.number]
            ended = Ended(exit_code=exit_code, lines=tuple(child.lines))
            self._go_on(child.number, ended, selector)


class _Child:
    """A running process and what it has said."""

    def __init__(self, number: int, command: Command, environment: Mapping[str, str]) -> None:
        self.number = number
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self.descriptor, write_end = os.pipe()
        os.set_blocking(self.descriptor, False)
        self._unread = b""
        try:
            self.process = subprocess.Popen(
                command.arguments,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=write_end,
                env=dict(environment),
                # Out of reach of the terminal's Ctrl-C, which is ours to pass on.
                start_new_session=True,
                preexec_fn=_death_notice(),
            )
        except OSError as error:
            os.close(self.descriptor)
            raise RunFailedError(f"{command.arguments[0]} cannot be started: {error}") from error
        finally:
            os.close(write_end)

    def read_lines(self) -> list[str]:
        """Take whatever is there, without waiting."""
        found: list[str] = []
        with suppress(BlockingIOError):
            while chunk := os.read(self.descriptor, _READ_BYTES):
                *whole, self._unread = (self._unread + chunk).split(b"\n")
                if len(self._unread) > _MAX_LINE_BYTES:
                    whole, self._unread = [*whole, self._unread], b""
                found += [line.decode(errors="replace") for line in whole]
        self.lines.extend(found)
        return found

    def rest(self) -> list[str]:
        """Take a last line that has no end."""
        last, self._unread = self._unread.decode(errors="replace"), b""
        found = [last] if last else []
        self.lines.extend(found)
        return found

    def close(self, selector: selectors.BaseSelector) -> None:
        if self.descriptor >= 0:
            with suppress(KeyError):  # it was never registered
                selector.unregister(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1
            _end_group(self.process)


def end_all(processes: "Sequence[subprocess.Popen[bytes]]") -> None:
    """Ask processes to end, wait until they have cleaned up, and kill what they leave."""
    for process in processes:
        process.terminate()
    deadline_s = time.monotonic() + END_WITHIN_S
    for process in processes:
        with suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline_s - time.monotonic()))
        _end_group(process)
        process.wait()


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    # It leads a group; a compiler that is still in it has lost its parent.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _death_notice() -> Callable[[], None] | None:
    """What a child does before it starts: ask for SIGTERM when this process is killed."""
    if sys.platform != "linux":
        return None
    parent, prctl = os.getpid(), ctypes.CDLL(None).prctl

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it was killed meanwhile
            os._exit(128 + signal.SIGTERM)

    return ask
