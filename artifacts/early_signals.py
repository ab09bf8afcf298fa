"""What a signal does before a program has handlers of its own. Knows nothing of programs.

Imports little, and no `typing`: it is the first thing that an entry point loads, and until then a
signal ends in Python's own way.
"""

import os
import signal
from types import FrameType


def end_on_signals() -> None:
    """Let Ctrl-C and SIGTERM end the process at once, with 128 + number and not a word.

    While a program still loads its modules there is nothing to clean up. Python's own way is a
    traceback for the one, and for the other the kernel's, which spares process 1 of a container.
    A signal that the parent chose to ignore stays ignored (nohup). Main thread only.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)


def _end(number: int, _frame: FrameType | None) -> None:
    os._exit(128 + number)
