"""Turns signals into exceptions, so that every `with` block on the way out cleans up.

Knows nothing of compiles.
"""

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

# Ctrl-C pressed twice in one breath is one wish; the second must not cut the clean-up of the first
# short.
SAME_WISH_S = 1.0
RETRY_S = 0.05
_Handler = Callable[[int, FrameType | None], object]


class TerminatedError(BaseException):
    """SIGTERM or SIGHUP arrived; not an `Exception`, as nothing may take it for a failure."""

    def __init__(self, signal_number: int) -> None:
        """Remember which signal it was."""
        super().__init__(signal_number)
        self.signal_number = signal_number


@contextmanager
def signals_as_exceptions() -> Iterator[None]:
    """Raise `KeyboardInterrupt` on SIGINT, `TerminatedError` on SIGTERM and SIGHUP.

    A signal that the parent chose to ignore stays ignored (nohup). Main thread only.
    """
    handler = _make_handler(time.monotonic)
    previous = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in previous:
        signal.signal(number, handler)
    try:
        with _lost_ones_again():
            yield
    finally:
        for number, old in previous.items():
            signal.signal(number, old)


@contextmanager
def _lost_ones_again() -> Iterator[None]:
    """Raise once more what Python dropped.

    An exception that a signal raises inside a destructor or a weak reference's callback, as imports
    have many, is reported to `sys.unraisablehook` and goes no further.
    """
    lost: list[BaseException] = []
    usual_hook, usual_handler = sys.unraisablehook, signal.getsignal(signal.SIGALRM)

    def hook(report: "sys.UnraisableHookArgs") -> None:
        if isinstance(report.exc_value, (KeyboardInterrupt, TerminatedError)):
            lost.append(report.exc_value)
            signal.setitimer(signal.ITIMER_REAL, RETRY_S)
        else:
            usual_hook(report)

    def again(_number: int, _frame: FrameType | None) -> None:
        if lost:
            raise lost.pop()

    sys.unraisablehook = hook
    signal.signal(signal.SIGALRM, again)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, usual_handler)
        sys.unraisablehook = usual_hook


def _make_handler(clock: Callable[[], float]) -> _Handler:
    last_s: float | None = None

    def handle(number: int, _frame: FrameType | None) -> None:
        nonlocal last_s
        now_s = clock()
        if last_s is not None and now_s - last_s < SAME_WISH_S:
            return
        last_s = now_s
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise TerminatedError(number)

    return handle
