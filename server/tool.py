"""Runs `infinity-compile` as processes of its own and forwards their logs.

Knows nothing of commands, references or caches.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO

from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError, UsageError

_log = logging.getLogger("infinity_v3")
_ERRORS: Mapping[int, type[InfinityError]] = {2: UsageError, 3: RefusedError}
_CLEAN_UP_S = 10.0
_LET_GO_S = 1.0
"""For who ends with us: it makes nothing of its own, and hangs where a registry does."""
_KEPT_VARIABLES = re.compile(
    r"PATH|HOME|USER|LOGNAME|LANG|LC_.*|TZ|TMPDIR|XDG_CACHE_HOME|LD_LIBRARY_PATH|VIRTUAL_ENV|CC|CXX|"
    r"HF_(TOKEN|HOME|HUB_.*|ENDPOINT)|(HTTP|HTTPS|NO|ALL)_PROXY|(http|https|no|all)_proxy|SSL_CERT_(FILE|DIR)|"
    r"REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
)

LineReader = Callable[[str], None]


def log_line(text: str) -> None:
    """Forward one line of a tool to the server's log."""
    _log.info("infinity-compile: %s", text)


def scrubbed_environment(environ: Mapping[str, str], also: str = "") -> dict[str, str]:
    """What a tool may see: places, locale, proxies and hub access; no key of the server.

    Args:
        environ: the process environment.
        also: pattern of more variables to keep; "" = none.
    """
    return {
        name: value
        for name, value in environ.items()
        if _KEPT_VARIABLES.fullmatch(name) or (also and re.fullmatch(also, name))
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnd:
    """How a process ended.

    Attributes:
        code: exit code; negative = killed by that signal.
        sentence: its last error sentence; "" = it said none.
    """

    code: int
    sentence: str

    def failure(self, what: str) -> InfinityError:
        """The error that a code other than 0 stands for; `what` opens its sentence."""
        kind = _ERRORS.get(self.code, RunFailedError)
        reason = self.sentence or f"infinity-compile ended with exit code {self.code}"
        return kind(f"{what}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    process: "subprocess.Popen[str]"
    has_ended: threading.Event
    clean_up_s: float


class Tool:
    """Any number of processes at a time; all methods may be called on any thread."""

    def __init__(self) -> None:
        self._running: list[_Running] = []
        self._lock = threading.Lock()
        self._is_stopped = False

    def run(
        self,
        arguments: Sequence[str],
        environ: Mapping[str, str],
        on_line: LineReader = log_line,
        *,
        ends_with_us: bool = False,
    ) -> ToolEnd:
        """Start `infinity-compile ARGUMENTS` and wait for its end.

        Args:
            arguments: command and options.
            environ: everything that it sees.
            on_line: told each line of its standard output, on the calling thread; what it writes to
                standard error goes to the log.
            ends_with_us: its standard input stays open as long as this process lives.

        Raises:
            RunFailedError: it cannot be started, or `stop` was called before.
        """
        command = [sys.executable, "-m", "infinity_v3.compiler.cli", *arguments]
        with self._started(command, environ, ends_with_us=ends_with_us) as process:
            assert process.stdout is not None, "the tool's output is a pipe; this is a bug"
            assert process.stderr is not None, "the tool's log is a pipe; this is a bug"
            errors = _ErrorLog(process.stderr)
            for line in _lines(process.stdout):
                on_line(line)
            code = process.wait()
            return ToolEnd(code=code, sentence=errors.last_sentence())

    def stop(self) -> None:
        """End what runs, with all that it has started, and start nothing more.

        Blocks until it has cleaned up, for some seconds at most.
        """
        with self._lock:
            self._is_stopped = True
            running = tuple(self._running)
        for one in running:
            with suppress(ProcessLookupError):
                one.process.terminate()
        for one in running:
            try:
                one.process.wait(one.clean_up_s)
            except subprocess.TimeoutExpired:
                _log.warning("infinity-compile is killed: it did not stop in %g s", one.clean_up_s)
            # What it has started may hold its output open, and `run` waits for the end of that.
            _kill_family(one.process)
            one.has_ended.wait(one.clean_up_s)

    @contextmanager
    def _started(
        self, command: Sequence[str], environ: Mapping[str, str], *, ends_with_us: bool
    ) -> "Iterator[subprocess.Popen[str]]":
        one = self._start(command, environ, ends_with_us=ends_with_us)
        with one.process as process:
            try:
                yield process
            finally:
                _kill_family(process)
                with self._lock:
                    self._running.remove(one)
                one.has_ended.set()

    def _start(
        self, command: Sequence[str], environ: Mapping[str, str], *, ends_with_us: bool
    ) -> _Running:
        with self._lock:
            if self._is_stopped:
                raise RunFailedError("the server is going down, nothing is started")
            try:
                process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE if ends_with_us else subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=dict(environ),
                    text=True,
                    errors="replace",
                    # Out of reach of the terminal's Ctrl-C, which is ours to pass on.
                    start_new_session=True,
                )
            except OSError as error:
                raise RunFailedError(f"infinity-compile cannot be started: {error}") from None
            one = _Running(
                process=process,
                has_ended=threading.Event(),
                clean_up_s=_LET_GO_S if ends_with_us else _CLEAN_UP_S,
            )
            self._running.append(one)
            return one


def _kill_family(process: "subprocess.Popen[str]") -> None:
    """Compilers that it started may outlive it; it leads their process group."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class _ErrorLog:
    """Logs what a tool writes to standard error, on a thread, and keeps its last error sentence."""

    def __init__(self, lines: IO[str]) -> None:
        self._sentence = ""
        self._thread = threading.Thread(target=self._read, args=(lines,), daemon=True)
        self._thread.start()

    def last_sentence(self) -> str:
        """Wait for the end of the output."""
        self._thread.join(_CLEAN_UP_S)
        return self._sentence

    def _read(self, lines: IO[str]) -> None:
        with suppress(ValueError):  # closed under a reader, after a process that left one open
            for text in _lines(lines):
                if text.startswith("error: "):
                    self._sentence = text.removeprefix("error: ")
                else:
                    log_line(text)


def _lines(lines: Iterable[str]) -> Iterator[str]:
    return filter(None, (line.strip() for line in lines))
