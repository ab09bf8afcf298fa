"""Signals become exceptions, also where Python would drop them."""

import os
import signal
import time
import weakref

import pytest

from infinity_v3.compiler.interrupt import TerminatedError, signals_as_exceptions


class Referent:
    """Something that can be referred to weakly."""


@pytest.mark.parametrize(
    ("number", "error"),
    [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, TerminatedError)],
)
def test_a_signal_inside_a_weak_callback_is_not_lost(
    number: int, error: type[BaseException]
) -> None:
    def interrupted(_reference: object) -> None:
        os.kill(os.getpid(), number)
        time.sleep(0.01)

    def lose_a_referent() -> None:
        referent = Referent()
        reference = weakref.ref(referent, interrupted)
        del referent
        assert reference() is None
        time.sleep(5)

    with pytest.raises(error), signals_as_exceptions():
        lose_a_referent()
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
