"""Builds and calls the loop of vnni_rate.cpp, the floor of 8-bit linear layers.

Knows nothing of models and engines.
"""

import ctypes
import subprocess
import time
from pathlib import Path

from infinity_v3.compiler.toolchain import cxx_command

_SOURCE = Path(__file__).resolve().with_suffix(".cpp")
_FLAGS = ("-O3", "-mavx512f", "-mavx512vnni", "-fopenmp", "-fPIC", "-shared")
_ROUNDS = 40_000
"""About a million instructions on each thread: a third of a millisecond."""


class VnniLoop:
    """The loop, ready to run.

    Args:
        folder: receives the library.
        num_threads: that multiply at the same time.

    Raises:
        CalledProcessError: the C++ compiler failed.
    """

    def __init__(self, folder: Path, num_threads: int) -> None:
        library = folder / "vnni_rate.so"
        subprocess.run([cxx_command(), *_FLAGS, str(_SOURCE), "-o", str(library)], check=True)
        self._multiply = ctypes.CDLL(str(library)).vnni_multiply
        self._multiply.argtypes = [ctypes.c_int64, ctypes.c_int]
        self._multiply.restype = ctypes.c_int64
        self._num_threads = num_threads

    def gops(self) -> float:
        """Run once: 10^9 operations per second, a multiplication and its addition being two."""
        started_s = time.perf_counter()
        operations: int = self._multiply(_ROUNDS, self._num_threads)
        return 1e-9 * operations / (time.perf_counter() - started_s)
