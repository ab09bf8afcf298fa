"""Processes that work for the server: their output, their end, and the end of the server."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError, RunFailedError, UsageError
from infinity_v3.server.tool import Tool, ToolEnd


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A shell script in place of the interpreter; write its text before it is run."""
    script = tmp_path / "program"
    monkeypatch.setattr(sys, "executable", str(script))
    return script


def write(script: Path, *lines: str) -> None:
    script.write_text("\n".join(["#!/bin/sh", *lines]), encoding="utf-8")
    script.chmod(0o700)


def test_results_and_errors_are_kept_apart(program: Path) -> None:
    write(program, "echo one", "echo 'error: no way' >&2", "echo noise >&2", "echo two", "exit 3")
    lines: list[str] = []
    end = Tool().run(["x"], {}, lines.append)
    assert lines == ["one", "two"]
    assert end == ToolEnd(code=3, sentence="no way")


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, RunFailedError), (2, UsageError), (3, RefusedError), (143, RunFailedError)],
)
def test_what_a_code_stands_for(code: int, kind: type[Exception]) -> None:
    found = ToolEnd(code=code, sentence="").failure("pulling")
    assert type(found) is kind
    assert str(found) == f"pulling: infinity-compile ended with exit code {code}"


def test_the_program_sees_what_it_is_given(program: Path) -> None:
    write(program, 'echo "$@"', 'echo "$SEEN/$HOME"')
    lines: list[str] = []
    Tool().run(["registry", "pull"], {"SEEN": "yes"}, lines.append)
    assert lines == ["-m infinity_v3.compiler.cli registry pull", "yes/"]


def test_stop_ends_all_that_runs_with_its_children(program: Path) -> None:
    write(program, "sleep 100 &", "echo $!", "wait")
    tool, lines, ends = Tool(), list[str](), list[ToolEnd]()
    threads = [
        threading.Thread(
            target=lambda: ends.append(tool.run(["x"], {"PATH": os.environ["PATH"]}, lines.append))
        )
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(lines) == 2)
    tool.stop()
    for thread in threads:
        thread.join(10)
    assert [end.code for end in ends] == [-signal.SIGTERM] * 2
    wait_until(lambda: not any(is_running(int(pid)) for pid in lines))
    with pytest.raises(RunFailedError, match="going down"):
        tool.run(["x"], {})


def test_who_ends_with_us_is_not_waited_for_long(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infinity_v3.server.tool._LET_GO_S", 0.01)
    monkeypatch.setattr("infinity_v3.server.tool._CLEAN_UP_S", 1000.0)
    write(program, "echo $$", "kill -STOP $$")
    tool, lines = Tool(), list[str]()
    thread = threading.Thread(target=lambda: tool.run(["x"], {}, lines.append, ends_with_us=True))
    thread.start()
    wait_until(lambda: lines)
    stopping = threading.Thread(target=tool.stop, daemon=True)
    stopping.start()
    stopping.join(10)
    assert not stopping.is_alive()
    thread.join(10)
    assert not is_running(int(lines[0]))


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_until(is_true: "object") -> None:
    deadline_s = time.monotonic() + 10
    while not is_true():  # type: ignore[operator]
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_standard_input_stays_open_for_who_ends_with_us(program: Path) -> None:
    write(program, "read line && echo never", "echo ended")
    lines: list[str] = []
    tool = Tool()
    thread = threading.Thread(target=lambda: tool.run(["x"], {}, lines.append, ends_with_us=True))
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    tool.stop()
    thread.join(10)
    assert lines == []
    tool = Tool()
    tool.run(["x"], {}, lines.append)
    assert lines == ["ended"]
