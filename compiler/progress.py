"""Tells the user on stderr which stage a compile is in and where the time went.

Knows nothing of what a stage does. Results go to stdout, which this module never touches.
"""

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TextIO

CLEAR_LINE = "\r\x1b[K"
TICK_S = 0.2
PLAIN_LINE_EVERY_S = 10.0
BAR_WIDTH = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTime:
    """A finished stage; `depth` is 0 for a stage that is not inside another."""

    name: str
    depth: int
    duration_s: float


class Stage(Protocol):
    """A running stage."""

    def advance(self, amount: int = 1) -> None:
        """Report that `amount` of the stage's total is done."""


class Progress(Protocol):
    """Where a compile reports to. Called from one thread."""

    def stage(self, name: str, total: int | None = None) -> AbstractContextManager[Stage]:
        """Open a stage that ends with its `with` block; stages may nest.

        Args:
            name: what is being done, e.g. "export".
            total: amount that `advance` adds up to, in any unit; None = not known.
        """

    def note(self, text: str) -> None:
        """Show one line, e.g. a warning."""

    def times(self) -> tuple[StageTime, ...]:
        """Return the finished stages in the order they began."""

    def finish(self) -> None:
        """Show where the time went. Call once, when all stages are done."""


class _OpenStage:
    """Amounts of one stage, as `Stage`."""

    def __init__(self, name: str, total: int | None, depth: int, begin_s: float) -> None:
        self.name = name
        self.total = total
        self.depth = depth
        self.begin_s = begin_s
        self.end_s: float | None = None
        self.done = 0
        self.on_advance: Callable[[], None] | None = None

    def advance(self, amount: int = 1) -> None:
        self.done += amount
        if self.on_advance is not None:
            self.on_advance()

    def share(self) -> float | None:
        if not self.total:
            return None
        return min(self.done / self.total, 1.0)


class SilentProgress:
    """Shows nothing and measures: for `--json`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Start the clock."""
        self._clock = clock
        self._begin_s = clock()
        self._stages: list[_OpenStage] = []
        self._open: list[_OpenStage] = []

    @contextmanager
    def stage(self, name: str, total: int | None = None) -> Iterator[Stage]:
        """See `Progress.stage`."""
        stage = _OpenStage(name, total, len(self._open), self._clock())
        self._stages.append(stage)
        self._open.append(stage)
        self._began(stage)
        try:
            yield stage
        finally:
            stage.end_s = self._clock()
            self._open.pop()
            self._ended(stage)

    def note(self, text: str) -> None:
        """See `Progress.note`."""

    def times(self) -> tuple[StageTime, ...]:
        """See `Progress.times`."""
        return tuple(
            StageTime(name=stage.name, depth=stage.depth, duration_s=stage.end_s - stage.begin_s)
            for stage in self._stages
            if stage.end_s is not None
        )

    def finish(self) -> None:
        """See `Progress.finish`."""

    def _elapsed_s(self) -> float:
        return self._clock() - self._begin_s

    def _began(self, stage: _OpenStage) -> None:
        pass

    def _ended(self, stage: _OpenStage) -> None:
        pass


class PlainProgress(SilentProgress):
    """Lines for logs: the time at which a stage begins, then one every ten seconds of amounts."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`."""
        super().__init__(clock)
        self._stream = stream
        self._last_line_s = clock()

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        self._write(f"{text}\n")

    def finish(self) -> None:
        """See `Progress.finish`."""
        self._write(summary(self.times(), self._elapsed_s()))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()

    def _began(self, stage: _OpenStage) -> None:
        stage.on_advance = self._advanced
        self._line(stage.name, stage.depth)

    def _advanced(self) -> None:
        if self._open and self._clock() - self._last_line_s >= PLAIN_LINE_EVERY_S:
            stage = self._open[-1]
            share = stage.share()
            amount = f"{share:.0%}" if share is not None else str(stage.done)
            self._line(f"{stage.name} {amount}", stage.depth)

    def _line(self, text: str, depth: int) -> None:
        self._last_line_s = self._clock()
        self._write(f"at {self._elapsed_s():7.1f} s  {'  ' * depth}{text}\n")


class TerminalProgress(PlainProgress):
    """One line on a terminal, redrawn in place: stage, bar, elapsed time."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        """Write to `stream`, which must understand ANSI escapes."""
        super().__init__(stream, clock)
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._ticker: threading.Thread | None = None

    def note(self, text: str) -> None:
        """See `Progress.note`."""
        with self._lock:
            self._write(f"{CLEAR_LINE}{text}\n")

    def _began(self, stage: _OpenStage) -> None:
        # The ticker shows that time passes while a compiler runs; it exists only while a stage is
        # open.
        if self._ticker is None:
            self._stopped.clear()
            self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)
            self._ticker.start()
        self._draw()

    def _ended(self, stage: _OpenStage) -> None:
        if self._open or self._ticker is None:
            return
        self._stopped.set()
        self._ticker.join()
        self._ticker = None
        with self._lock:
            self._write(CLEAR_LINE)

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_S):
            self._draw()

    def _draw(self) -> None:
        with self._lock:
            stages = tuple(self._open)
            if stages:
                width = shutil.get_terminal_size().columns - 1
                self._write(CLEAR_LINE + bar_line(stages, self._clock())[:width])


def bar_line(stages: tuple[_OpenStage, ...], now_s: float) -> str:
    """Return the line of a terminal: "build > cpu-avx2 [######------]  50%  3.1 s"."""
    inner = stages[-1]
    path = " > ".join(stage.name for stage in stages)
    share = inner.share()
    bar = ""
    if share is not None:
        filled = round(share * BAR_WIDTH)
        bar = f" [{'#' * filled}{'-' * (BAR_WIDTH - filled)}] {share:4.0%}"
    return f"{path}{bar}  {now_s - inner.begin_s:.1f} s"


def summary(times: tuple[StageTime, ...], total_s: float) -> str:
    """Return the table of stages with their seconds and the total, one line each."""
    width = max((len(entry.name) + 2 * entry.depth for entry in times), default=0)
    width = max(width, len("total"))
    rows = [("  " * entry.depth + entry.name, entry.duration_s) for entry in times]
    rows.append(("total", total_s))
    return "".join(f"{name:<{width}}  {duration_s:8.1f} s\n" for name, duration_s in rows)


def choose_progress(stream: TextIO, *, is_silent: bool, terminal: str) -> Progress:
    """Return the implementation that fits the stream.

    Args:
        stream: usually stderr.
        is_silent: show nothing.
        terminal: value of the variable TERM; "dumb" terminals get plain lines.
    """
    if is_silent:
        return SilentProgress()
    if stream.isatty() and terminal not in ("", "dumb"):
        return TerminalProgress(stream)
    return PlainProgress(stream)
