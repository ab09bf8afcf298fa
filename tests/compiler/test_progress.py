"""What a user sees of a running compile: on a terminal, in a log, and with --json."""

import io
import re

import pytest

from infinity_v3.compiler.progress import (
    PlainProgress,
    SilentProgress,
    StageTime,
    TerminalProgress,
    choose_progress,
    summary,
)


class Clock:
    """A clock that only moves when told."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def nested(progress: SilentProgress, clock: Clock) -> None:
    with progress.stage("hash", 4) as stage:
        stage.advance(1)
        clock.now_s += 2
        stage.advance(3)
    with progress.stage("build"):
        clock.now_s += 1
        with progress.stage("kernel"):
            clock.now_s += 5


EXPECTED_TIMES = (
    StageTime(name="hash", depth=0, duration_s=2.0),
    StageTime(name="build", depth=0, duration_s=6.0),
    StageTime(name="kernel", depth=1, duration_s=5.0),
)


def test_times_are_measured_in_order_of_begin() -> None:
    clock = Clock()
    progress = SilentProgress(clock)
    nested(progress, clock)
    assert progress.times() == EXPECTED_TIMES


def test_a_running_stage_has_no_time_yet() -> None:
    clock = Clock()
    progress = SilentProgress(clock)
    with progress.stage("publish"):
        assert progress.times() == ()


def test_a_failed_stage_ends_too() -> None:
    clock = Clock()
    progress = SilentProgress(clock)
    with pytest.raises(ValueError, match="x"), progress.stage("build"):
        raise ValueError("x")
    with progress.stage("next"):
        pass
    assert [(time.name, time.depth) for time in progress.times()] == [("build", 0), ("next", 0)]


def test_plain_lines() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = PlainProgress(stream, clock)
    nested(progress, clock)
    progress.note("warning: cls assumed")
    progress.finish()
    assert stream.getvalue() == (
        "at     0.0 s  hash\n"
        "at     2.0 s  build\n"
        "at     3.0 s    kernel\n"
        "warning: cls assumed\n"
        "hash           2.0 s\n"
        "build          6.0 s\n"
        "  kernel       5.0 s\n"
        "total          8.0 s\n"
    )


def test_plain_amounts_come_every_ten_seconds() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = PlainProgress(stream, clock)
    with progress.stage("hash", 100) as stage:
        for _ in range(100):
            clock.now_s += 0.3
            stage.advance()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3
    assert re.fullmatch(r"at\s+10\.\d s  hash 3\d%", lines[1])


def test_plain_amounts_without_a_total_are_counts() -> None:
    clock, stream = Clock(), io.StringIO()
    progress = PlainProgress(stream, clock)
    with progress.stage("probes") as stage:
        clock.now_s += 11
        stage.advance(7)
    assert stream.getvalue().splitlines()[1] == "at    11.0 s  probes 7"


def test_the_terminal_line_is_one_line_and_goes_away() -> None:
    clock, stream = Clock(), Terminal()
    progress = TerminalProgress(stream, clock)
    with progress.stage("build"), progress.stage("avx2", 2) as stage:
        stage.advance()
        clock.now_s += 3
        progress.note("warning: look")
        with progress.stage("inner"):
            pass
    text = stream.getvalue()
    assert "build > avx2 [------------------------]   0%  0.0 s" in text
    assert "build > avx2 > inner  0.0 s" in text
    assert text.count("\n") == 1
    assert text.endswith("\r\x1b[K")
    assert "\r\x1b[Kwarning: look\n" in text


def test_the_terminal_line_moves_without_amounts() -> None:
    stream = Terminal()
    progress = TerminalProgress(stream)
    with progress.stage("build"):
        first = stream.getvalue()
        assert "build  0.0 s" in first
        ticker = progress._ticker
        assert ticker is not None
        ticker.join(timeout=0.7)
        assert len(stream.getvalue()) > len(first)
    assert not ticker.is_alive()


def test_the_terminal_line_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = Terminal()
    progress = TerminalProgress(stream, Clock())
    with progress.stage("a very long name of a stage", 10):
        pass
    lines = stream.getvalue().replace("\x1b[K", "").split("\r")
    assert max(len(line) for line in lines) == 39


def test_a_total_of_nothing_is_no_division() -> None:
    stream = Terminal()
    progress = TerminalProgress(stream, Clock())
    with progress.stage("hash", 0) as stage:
        stage.advance()
    assert "hash  0.0 s" in stream.getvalue()


def test_amounts_beyond_the_total_stay_within_the_bar() -> None:
    stream = Terminal()
    progress = TerminalProgress(stream, Clock())
    with progress.stage("hash", 2) as stage:
        stage.advance(5)
        with progress.stage("x"):
            pass
        progress._draw()
    assert "[########################] 100%" in stream.getvalue()


def test_silence() -> None:
    stream = Terminal()
    progress = choose_progress(stream, is_silent=True, terminal="xterm")
    with progress.stage("build"):
        progress.note("x")
    progress.finish()
    assert stream.getvalue() == ""
    assert [time.name for time in progress.times()] == ["build"]


@pytest.mark.parametrize(
    ("stream", "terminal", "expected"),
    [
        (Terminal(), "xterm", TerminalProgress),
        (Terminal(), "dumb", PlainProgress),
        (Terminal(), "", PlainProgress),
        (io.StringIO(), "xterm", PlainProgress),
    ],
)
def test_the_stream_decides(stream: io.StringIO, terminal: str, expected: type) -> None:
    assert type(choose_progress(stream, is_silent=False, terminal=terminal)) is expected


def test_an_empty_summary_has_a_total() -> None:
    assert summary((), 1.25) == "total       1.2 s\n"
