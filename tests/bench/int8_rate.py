"""Builds and calls the loops of int8_rate.cpp, the floor of 8-bit linear layers.

Knows nothing of models and engines.
"""

import ctypes
import subprocess
import time
from importlib import resources
from pathlib import Path

from infinity_v3.compiler.toolchain import cxx_command

_SOURCE = Path(__file__).resolve().with_suffix(".cpp")
_FLAGS = ("-O3", "-mavx512f", "-mavx512vnni", "-fopenmp", "-fPIC", "-shared")
_TILE_FLAGS = ("-mamx-tile", "-mamx-int8")
_ROUNDS = 40_000
"""About a million instructions on each thread: a third of a millisecond."""
_TILE_ROUNDS = 15_000
"""60,000 products of tiles on each thread: as long."""


class Int8Loop:
    """One of the loops, ready to run.

    Args:
        folder: receives the library.
        num_threads: that multiply at the same time.
        uses_tiles: whether the matrix unit multiplies, else the vector units.

    Raises:
        CalledProcessError: the C++ compiler failed.
    """

    def __init__(self, folder: Path, num_threads: int, *, uses_tiles: bool) -> None:
        library = folder / "int8_rate.so"
        flags = (*_FLAGS, *(_TILE_FLAGS if uses_tiles else ()))
        with resources.as_file(resources.files("infinity_v3.compiler.kernels")) as kernels:
            command = [cxx_command(), *flags, f"-I{kernels}", str(_SOURCE), "-o", str(library)]
            subprocess.run(command, check=True)
        loops = ctypes.CDLL(str(library))
        self._multiply = loops.tile_multiply if uses_tiles else loops.vnni_multiply
        self._multiply.argtypes = [ctypes.c_int64, ctypes.c_int]
        self._multiply.restype = ctypes.c_int64
        self._num_rounds = _TILE_ROUNDS if uses_tiles else _ROUNDS
        self._num_threads = num_threads

    def gops(self) -> float:
        """Run once: 10^9 operations per second, a multiplication and its addition being two."""
        started_s = time.perf_counter()
        operations: int = self._multiply(self._num_rounds, self._num_threads)
        return 1e-9 * operations / (time.perf_counter() - started_s)
