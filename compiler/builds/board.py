"""Shows on stderr how several builds go on at a time: a live table, or lines for logs.

Knows nothing of what a job does; results go to stdout, which this module never touches.
"""

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TextIO

from infinity_v3.compiler.builds.pool import Watcher
from infinity_v3.compiler.progress import CLEAR_LINE

DRAW_EVERY_S = 0.2
_UP = "\x1b[{}A"
_STAGE = re.compile(r"at +[\d.]+ s  (?P<stage>\s*\S.*)")
"""A line of `progress.PlainProgress`, which the children write."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00-\x08\x0b-\x1f\x7f]")
_MAX_ROWS = 12


class Board(Watcher, Protocol):
    """A watcher that is told results, too, and closed at the end."""

    def note(self, text: str) -> None:
        """Show one line that stays."""

    def close(self) -> None:
        """Take away what does not stay."""


@dataclass(slots=True)
class _Row:
    """A running job."""

    begin_s: float
    stage: str


class SilentBoard:
    """Shows nothing: for `--json`."""

    def began(self, job: int, step: str) -> None:
        """See `Watcher.began`."""

    def said(self, job: int, line: str) -> None:
        """See `Watcher.said`."""

    def ended(self, job: int, result: object) -> None:
        """See `Watcher.ended`."""

    def tick(self) -> None:
        """See `Watcher.tick`."""

    def note(self, text: str) -> None:
        """See `Board.note`."""

    def close(self) -> None:
        """See `Board.close`."""


class PlainBoard(SilentBoard):
    """Lines for logs: what each child says, with the job's title in front."""

    def __init__(
        self, stream: TextIO, titles: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Write to `stream`; `titles` are those of the jobs, by their number."""
        self._stream = stream
        self._titles = titles
        self._clock = clock
        self._begin_s = clock()
        self._width = max((len(title) for title in titles), default=0)

    def began(self, job: int, step: str) -> None:
        """See `Watcher.began`."""
        self._line(job, step)

    def said(self, job: int, line: str) -> None:
        """See `Watcher.said`."""
        self._line(job, stage_of(line) or shown(line))

    def ended(self, job: int, result: object) -> None:
        """See `Watcher.ended`."""
        self._line(job, str(result))

    def note(self, text: str) -> None:
        """See `Board.note`."""
        self._write(f"{text}\n")

    def _line(self, job: int, text: str) -> None:
        if text.strip():
            elapsed_s = self._clock() - self._begin_s
            title = f"{self._titles[job]:<{self._width}}"
            self._write(f"at {elapsed_s:7.1f} s  {title}  {text}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class TerminalBoard(PlainBoard):
    """A table on a terminal, redrawn in place: a row for each running job, and a last one."""

    def __init__(
        self, stream: TextIO, titles: Sequence[str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Write to `stream`, which must understand ANSI escapes."""
        super().__init__(stream, titles, clock)
        self._rows: dict[int, _Row] = {}
        self._num_done = 0
        self._num_drawn = 0
        self._drawn_s = 0.0

    def began(self, job: int, step: str) -> None:
        """See `Watcher.began`."""
        row = self._rows.setdefault(job, _Row(begin_s=self._clock(), stage=step))
        row.stage = step
        self._draw()

    def said(self, job: int, line: str) -> None:
        """See `Watcher.said`. Stages change the table, other lines stay."""
        stage = stage_of(line)
        if stage is not None:
            self._rows[job].stage = stage.strip()
        elif line.startswith(("warning: ", "error: ")):
            self.note(f"{self._titles[job]}: {shown(line)}")

    def ended(self, job: int, result: object) -> None:
        """See `Watcher.ended`."""
        self._rows.pop(job, None)
        self._num_done += 1
        self.note(f"{self._titles[job]}: {result}")

    def tick(self) -> None:
        """See `Watcher.tick`."""
        if self._clock() - self._drawn_s >= DRAW_EVERY_S:
            self._draw()

    def note(self, text: str) -> None:
        """See `Board.note`."""
        self._erase()
        self._write(f"{text}\n")
        self._draw()

    def close(self) -> None:
        """See `Board.close`."""
        self._erase()

    def _draw(self) -> None:
        self._drawn_s = self._clock()
        self._erase()
        width = shutil.get_terminal_size().columns - 1
        lines = [line[:width] for line in self._table(self._drawn_s)]
        self._num_drawn = len(lines)
        self._write("".join(f"{line}\n" for line in lines))

    def _table(self, now_s: float) -> list[str]:
        shown_rows = list(self._rows.items())[:_MAX_ROWS]
        lines = [
            f"{self._titles[job]:<{self._width}}  {now_s - row.begin_s:7.1f} s  {row.stage}"
            for job, row in shown_rows
        ]
        num_waiting = len(self._titles) - self._num_done - len(self._rows)
        lines.append(
            f"{self._num_done} of {len(self._titles)} done, {len(self._rows)} running, "
            f"{num_waiting} waiting  {now_s - self._begin_s:.1f} s"
        )
        return lines

    def _erase(self) -> None:
        if self._num_drawn:
            up = _UP.format(self._num_drawn)
            blank = f"{CLEAR_LINE}\n" * self._num_drawn
            self._write(f"{up}{blank}{up}")
            self._num_drawn = 0


def stage_of(line: str) -> str | None:
    """Return the stage that a line of a compile's progress names, None for any other line."""
    found = _STAGE.fullmatch(line)
    return None if found is None else shown(found["stage"])


def shown(line: str) -> str:
    """Return a line without what would move a terminal's cursor."""
    return _CONTROL.sub("", line).rstrip()


def choose_board(stream: TextIO, titles: Sequence[str], *, is_silent: bool, terminal: str) -> Board:
    """Return the implementation that fits the stream.

    Args:
        stream: usually stderr.
        titles: of the jobs, by their number.
        is_silent: show nothing.
        terminal: value of the variable TERM; "dumb" terminals get plain lines.
    """
    if is_silent:
        return SilentBoard()
    if stream.isatty() and terminal not in ("", "dumb"):
        return TerminalBoard(stream, titles)
    return PlainBoard(stream, titles)
