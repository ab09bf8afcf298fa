"""Runs a command and turns whatever ends it into one sentence on stderr and an exit code.

Knows nothing of what the command does.
"""

import errno
import io
import os
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from pathlib import Path

from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.compiler.interrupt import TerminatedError, signals_as_exceptions

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130


class VerdictError(Exception):
    """Ends a command whose results are a verdict: they are printed, and the code is the error's."""

    def __init__(self, error: InfinityError) -> None:
        super().__init__(str(error))
        self.error = error


def run_to_exit_code(command: Callable[[], None]) -> int:
    """Run a command to its end; what it writes to stdout appears when it has returned.

    Returns:
        0 when it returned; the error's own code for an `InfinityError`; 130 after Ctrl-C and 128 +
            number after another signal; 1 for I/O errors and for a bug, which alone prints a
            traceback.
    """
    if sys.stderr is None:  # closed; and its number must not go to the next file that is opened
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stdout is None:  # closed by whoever started the program; nothing could be reported
        return _fail("standard output is closed; redirect it, if only to /dev/null", EXIT_FAILED)
    try:
        with signals_as_exceptions():
            _run_and_print(command)
    except InfinityError as error:
        return _fail(str(error), error.exit_code)
    except (KeyboardInterrupt, TerminatedError) as error:
        return _interrupted(error)
    except OSError as error:
        return _fail(describe_os_error(error), EXIT_FAILED)
    except MemoryError:
        return _fail("out of memory; free some or compile a smaller model", EXIT_FAILED)
    except Exception:
        traceback.print_exc()
        return _fail(
            "this is a bug in infinity-compile; please report the lines above", EXIT_FAILED
        )
    return 0


def _run_and_print(command: Callable[[], None]) -> None:
    results = io.StringIO()
    verdict: VerdictError | None = None
    try:
        with redirect_stdout(results):
            command()
    except VerdictError as error:
        verdict = error
    _write_results(results.getvalue())
    if verdict is not None:
        raise verdict.error


def describe_os_error(error: OSError) -> str:
    """Return one sentence that names the file, what failed and, where known, what to do."""
    if isinstance(error, BrokenPipeError):
        return "the reader of the output went away before its end"
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    where = f"{error.filename}: " if error.filename is not None else ""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"{where}{reason}; free some space there"
    return f"{where}{reason}"


def _write_results(text: str) -> None:
    """Write at once what the command said, so that a failure to do so is known for what it is."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        _discard_stdout()
        error.filename = "standard output"
        raise


def _interrupted(error: BaseException) -> int:
    if isinstance(error, TerminatedError):
        return _fail("terminated", 128 + error.signal_number)
    return _fail("interrupted", EXIT_INTERRUPTED)


def _fail(message: str, exit_code: int) -> int:
    with suppress(OSError):  # nobody may be reading stderr either: then the exit code says it all
        sys.stderr.write(f"error: {message}\n")
        sys.stderr.flush()
    return exit_code


def _discard_stdout() -> None:
    # What is still buffered would raise again when the interpreter flushes at its end.
    with suppress(OSError), Path(os.devnull).open("wb") as devnull:
        os.dup2(devnull.fileno(), sys.stdout.fileno())
