"""Whatever ends a command: one sentence on stderr and the right exit code."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from infinity_v3.artifacts.errors import (
    GateFailedError,
    InfinityError,
    RefusedError,
    RunFailedError,
    UsageError,
)
from infinity_v3.compiler.exits import run_to_exit_code
from infinity_v3.compiler.interrupt import TerminatedError, signals_as_exceptions


def raising(error: BaseException) -> Callable[[], None]:
    def command() -> None:
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (InfinityError("a"), 1, "error: a\n"),
        (RunFailedError("b"), 1, "error: b\n"),
        (UsageError("c"), 2, "error: c\n"),
        (RefusedError("d"), 3, "error: d\n"),
        (GateFailedError("e"), 4, "error: e\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (TerminatedError(signal.SIGTERM), 143, "error: terminated\n"),
        (TerminatedError(signal.SIGHUP), 129, "error: terminated\n"),
        (MemoryError(), 1, "error: out of memory; free some or compile a smaller model\n"),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/out/x"),
            1,
            "error: /out/x: no space left on device; free some space there\n",
        ),
        (
            PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/x"),
            1,
            "error: /x: permission denied\n",
        ),
        (OSError("odd"), 1, "error: odd\n"),
    ],
)
def test_one_sentence(
    error: BaseException, code: int, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_to_exit_code(raising(error)) == code
    assert capsys.readouterr() == ("", text)


def test_success_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(lambda: None) == 0
    assert capsys.readouterr() == ("", "")


def test_only_a_bug_shows_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_to_exit_code(raising(ZeroDivisionError("oops"))) == 1
    shown = capsys.readouterr().err
    assert "Traceback" in shown
    assert "ZeroDivisionError: oops" in shown
    assert shown.endswith(
        "error: this is a bug in infinity-compile; please report the lines above\n"
    )


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (signal.SIGINT, KeyboardInterrupt),
        (signal.SIGTERM, TerminatedError),
        (signal.SIGHUP, TerminatedError),
    ],
)
def test_signals_become_exceptions(number: signal.Signals, expected: type[BaseException]) -> None:
    # Under nohup, hang-ups are ignored, and stay ignored.
    outer = signal.signal(number, signal.SIG_DFL)
    try:
        with pytest.raises(expected), signals_as_exceptions():
            signal.raise_signal(number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, outer)


def test_a_second_signal_in_the_same_breath_does_not_cut_the_clean_up() -> None:
    steps: list[str] = []

    def interrupted_twice() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)
            steps.append("cleaned")

    with pytest.raises(KeyboardInterrupt), signals_as_exceptions():
        interrupted_twice()
    assert steps == ["cleaned"]


def test_a_later_signal_gets_through(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = iter((0.0, 2.0))
    monkeypatch.setattr("infinity_v3.compiler.interrupt.time.monotonic", lambda: next(now_s))

    def interrupted_twice() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as caught, signals_as_exceptions():
        interrupted_twice()
    assert isinstance(caught.value.__context__, KeyboardInterrupt)


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with signals_as_exceptions():
            signal.raise_signal(signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)


def run_script(script: str, stdout: int) -> "subprocess.Popen[str]":
    code = f"import sys\nfrom infinity_v3.compiler.exits import run_to_exit_code\n{script}"
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, text=True)


def test_a_closed_pipe() -> None:
    read_end, write_end = os.pipe()
    process = run_script(
        "sys.exit(run_to_exit_code(lambda: sys.stdout.write('x' * 1_000_000) and None))",
        stdout=write_end,
    )
    os.close(write_end)
    os.close(read_end)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (
        1,
        "error: the reader of the output went away before its end\n",
    )


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is missing")  # noqa: PTH110
def test_results_to_a_full_disk() -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = run_script(
            "sys.exit(run_to_exit_code(lambda: print('result')))", stdout=full.fileno()
        )
        _, err = process.communicate(timeout=30)
    assert process.returncode == 1
    assert err == "error: standard output: no space left on device; free some space there\n"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="/dev/full is missing")  # noqa: PTH110
@pytest.mark.parametrize("option", ["--help", "--version"])
def test_what_click_prints_to_a_full_disk(option: str) -> None:
    command = [sys.executable, "-m", "infinity_v3.compiler.cli", option]
    with open("/dev/full", "w") as full:  # noqa: PTH123
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "error: standard output: no space left on device; free some space there\n"


CLOSED = "from infinity_v3.compiler.exits import run_to_exit_code\nimport os, sys\n"


def run_in_shell(script: str, redirection: str) -> "subprocess.CompletedProcess[str]":
    command = f'"$0" -c "$1" {redirection}'
    return subprocess.run(
        ["/bin/sh", "-c", command, sys.executable, CLOSED + script],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_closed_stdout_is_said_before_anything_starts() -> None:
    done = run_in_shell("sys.exit(run_to_exit_code(lambda: os._exit(7)))", ">&-")
    assert (done.returncode, done.stderr) == (
        1,
        "error: standard output is closed; redirect it, if only to /dev/null\n",
    )


def test_a_closed_stderr_hinders_no_result() -> None:
    script = "sys.exit(run_to_exit_code(lambda: print(sys.stderr.write('x'), 'written')))"
    done = run_in_shell(script, "2>&-")
    assert (done.returncode, done.stdout, done.stderr) == (0, "1 written\n", "")
