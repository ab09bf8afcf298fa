"""What is seen of builds under way: a table on a terminal, lines in a log, nothing with --json."""

import io
import re

import pytest

from infinity_v3.compiler.builds.board import (
    PlainBoard,
    SilentBoard,
    TerminalBoard,
    choose_board,
    shown,
    stage_of,
)
from infinity_v3.compiler.progress import PlainProgress

TITLES = ["one==1.0", "seventeen==1.0"]


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def screen(text: str) -> list[str]:
    """What a terminal shows after the text: lines, moves up and cleared lines are obeyed."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[\d+A|\r\x1b\[K|\n|[^\x1b\r\n]+", text):
        if part.endswith("A"):
            row -= int(part[2:-1])
        elif part == "\r\x1b[K":
            lines[row] = ""
        elif part == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        else:
            lines[row] += part
    return [line for line in lines if line]


def test_lines_for_logs() -> None:
    clock, stream = Clock(), io.StringIO()
    board = PlainBoard(stream, TITLES, clock)
    board.began(0, "compile")
    clock.now_s += 1.25
    board.said(0, "at     0.1 s  load torch")
    board.said(1, "warning: \x1b[31mred\x1b[0m")
    board.said(1, "")
    board.ended(0, "refused: parity")
    board.note("note")
    assert stream.getvalue() == (
        "at     0.0 s  one==1.0        compile\n"
        "at     1.2 s  one==1.0        load torch\n"
        "at     1.2 s  seventeen==1.0  warning: red\n"
        "at     1.2 s  one==1.0        refused: parity\n"
        "note\n"
    )


def test_a_table_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    clock, stream = Clock(), Terminal()
    board = TerminalBoard(stream, [*TITLES, "three==1.0"], clock)
    board.began(0, "compile")
    board.began(1, "compile")
    clock.now_s += 2
    board.said(0, "at     1.9 s  build cpu-x86_64-avx2-f32 " + "x" * 40)
    board.said(1, "something else")
    board.tick()
    assert screen(stream.getvalue()) == [
        "one==1.0            2.0 s  build cpu-x86_64-avx2-f32 xxxxxx",
        "seventeen==1.0      2.0 s  compile",
        "0 of 3 done, 2 running, 1 waiting  2.0 s",
    ]
    board.said(1, "warning: cls assumed")
    board.ended(0, "built")
    assert screen(stream.getvalue()) == [
        "seventeen==1.0: warning: cls assumed",
        "one==1.0: built",
        "seventeen==1.0      2.0 s  compile",
        "1 of 3 done, 1 running, 1 waiting  2.0 s",
    ]
    board.close()
    assert screen(stream.getvalue()) == ["seventeen==1.0: warning: cls assumed", "one==1.0: built"]


def test_a_table_is_not_drawn_more_often_than_needed() -> None:
    clock, stream = Clock(), Terminal()
    board = TerminalBoard(stream, TITLES, clock)
    board.began(0, "compile")
    drawn = len(stream.getvalue())
    clock.now_s += 0.1
    board.tick()
    assert len(stream.getvalue()) == drawn
    clock.now_s += 0.2
    board.tick()
    assert len(stream.getvalue()) > drawn


def test_stages_are_those_that_a_compile_writes() -> None:
    stream = io.StringIO()
    progress = PlainProgress(stream)
    with progress.stage("hash", 2), progress.stage("build cpu"):
        progress.note("warning: x")
    lines = stream.getvalue().splitlines()
    assert [stage_of(line) for line in lines] == ["hash", "  build cpu", None]


def test_nothing_moves_the_cursor() -> None:
    assert shown("a\x1b[2Jb\rc\x07 ") == "abc"


@pytest.mark.parametrize(
    ("stream", "is_silent", "terminal", "expected"),
    [
        (Terminal(), True, "xterm", SilentBoard),
        (Terminal(), False, "xterm", TerminalBoard),
        (Terminal(), False, "dumb", PlainBoard),
        (Terminal(), False, "", PlainBoard),
        (io.StringIO(), False, "xterm", PlainBoard),
    ],
)
def test_which_one(
    stream: io.StringIO, is_silent: bool, terminal: str, expected: type[object]
) -> None:
    board = choose_board(stream, TITLES, is_silent=is_silent, terminal=terminal)
    assert type(board) is expected
