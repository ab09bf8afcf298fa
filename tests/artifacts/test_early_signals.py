"""A signal while a program still loads ends it with the usual code and without a traceback."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from typing import IO

import pytest

PROGRAMS = {
    "infinity_v3": ("infinity_v3.server.entry", "infinity_v3.server.cli"),
    "infinity-compile": ("infinity_v3.compiler.entry", "infinity_v3.compiler.cli"),
}
"""By command: where it begins, and the first module that it loads after that."""

STARTED = """
import signal, sys, time
signal.signal(signal.SIGINT, {action})
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "{loaded}":
            print("loading", flush=True)
            sys.stdin.read()
            raise SystemExit(7)
sys.meta_path.insert(0, Slow())
from {entry} import main
main()
"""
USUAL = "signal.default_int_handler"


@contextmanager
def loading(command: str, action: str = USUAL) -> "Iterator[subprocess.Popen[str]]":
    """The program at the moment when it begins to load its modules."""
    entry, loaded = PROGRAMS[command]
    script = STARTED.format(entry=entry, loaded=loaded, action=action)
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert _open(process.stdout).readline() == "loading\n"
        yield process


def _open(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


@pytest.mark.parametrize("command", PROGRAMS)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_modules_are_loaded(command: str, number: signal.Signals, code: int) -> None:
    with loading(command) as process:
        process.send_signal(number)
        assert process.wait(30) == code
        assert _open(process.stderr).read() == ""


@pytest.mark.parametrize("command", PROGRAMS)
def test_an_ignored_signal_stays_ignored(command: str) -> None:
    with loading(command, "signal.SIG_IGN") as process:
        process.send_signal(signal.SIGINT)
        _open(process.stdin).close()
        assert process.wait(30) == 7


def test_the_installed_commands_begin_there() -> None:
    found = {one.name: one.module for one in entry_points(group="console_scripts")}
    assert {name: found[name] for name in PROGRAMS} == {
        name: entry for name, (entry, _) in PROGRAMS.items()
    }
