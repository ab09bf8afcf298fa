"""Prepares the process for native libraries: thread settings, then loading beside other work.

Knows nothing of engines.
"""

import ctypes
import importlib
import os
from collections.abc import MutableMapping
from threading import Thread

from infinity_v3.server.config import ServeConfig

# Short waits inside one engine call are spun through; between calls the team sleeps and leaves
# its CPUs to others.
_SPIN_COUNT = "10000"
_EXTENSIONS = (
    "asyncio",
    "hashlib",
    "uuid",
    "zlib",
    "msgspec",
    "orjson",
    "granian.server.embed",
    "infinity_v3.runtime.tokenizer",
)


def engine_threads(configured: int | None, environ: MutableMapping[str, str]) -> int:
    """Threads of one engine call: the option, else OMP_NUM_THREADS, else the CPUs available."""
    inherited = environ.get("OMP_NUM_THREADS", "")
    if configured is not None:
        return configured
    if inherited.isascii() and inherited.isdigit() and int(inherited) > 0:
        return int(inherited)
    return len(os.sched_getaffinity(0))


def prepare_environment(config: ServeConfig, environ: MutableMapping[str, str]) -> None:
    """Set OpenMP's team size and wait policy; must precede the first native library."""
    teams = [engine_threads(model.cpu_threads_per_replica, environ) for model in config.models]
    environ["OMP_NUM_THREADS"] = str(max(teams, default=1))
    if "OMP_WAIT_POLICY" not in environ:
        environ.setdefault("GOMP_SPINCOUNT", _SPIN_COUNT)


def load_extension_modules() -> None:
    """Import what brings shared libraries of its own.

    Mapping torch's libraries holds the dynamic loader's lock for long, and importing any extension
    module waits for that lock: these come first, so that the rest of the imports runs beside the
    mapping.
    """
    for name in _EXTENSIONS:
        importlib.import_module(name)


def preload_libraries() -> None:
    """Map torch's CPU libraries in a thread; a failure shows when a model is loaded.

    Calling `dlopen` as a foreign function releases the lock, which opening a library through ctypes
    does not do before Python 3.12.
    """
    from infinity_v3.artifacts.torch_install import find_torch

    torch = find_torch()
    if torch is None or torch.lib_dir is None:
        return
    paths = [torch.lib_dir / name for name in ("libc10.so", "libtorch_cpu.so")]
    dlopen = ctypes.CDLL(None).dlopen
    dlopen.argtypes = (ctypes.c_char_p, ctypes.c_int)
    dlopen.restype = ctypes.c_void_p

    def load() -> None:
        for path in paths:
            dlopen(os.fsencode(path), os.RTLD_NOW | os.RTLD_GLOBAL)

    Thread(target=load, name="infinity-preload", daemon=True).start()
