"""Runs a console script unchanged; on SIGUSR1 the process writes its modules' names to a file.

Usage: http_launcher.py MODULES_FILE SCRIPT [ARGUMENT ...]
"""

import runpy
import signal
import sys
from pathlib import Path
from types import FrameType


def write_modules(number: int, frame: FrameType | None) -> None:
    names = "\n".join(sorted(sys.modules))
    unfinished = MODULES_FILE.with_suffix(".part")
    unfinished.write_text(names)
    unfinished.rename(MODULES_FILE)


if __name__ == "__main__":
    MODULES_FILE = Path(sys.argv[1])
    signal.signal(signal.SIGUSR1, write_modules)
    sys.argv = sys.argv[2:]
    sys.path[0] = str(Path(sys.argv[0]).parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
