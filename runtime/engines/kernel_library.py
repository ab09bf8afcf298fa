"""Loads the library of our own operators before a model that was linked against it. Knows nothing of its contents."""

import ctypes
import os
from pathlib import Path

from infinity_v3.artifacts.digest import sha256_of
from infinity_v3.artifacts.manifest import FileEntry
from infinity_v3.runtime.engine_errors import EngineLoadError


def load_kernel_library(path: str, entry: FileEntry) -> None:
    """Load `path` so that its SONAME, which is the file's name, satisfies the models linked against it.

    Raises:
        EngineLoadError: a library of the same SONAME but other bytes is loaded already, or it does not load.
    """
    soname = Path(entry.path).name
    loaded = _mapped_path(soname)
    if loaded is not None and _digest(loaded) != entry.sha256:
        raise EngineLoadError(
            f"{soname}: another library of this name and other bytes is loaded already; serve the two artifacts from "
            "two processes"
        )
    try:
        ctypes.CDLL(path)
    except OSError as error:
        raise EngineLoadError(f"{soname} could not be loaded: {error}") from error


def _mapped_path(soname: str) -> str | None:
    for line in Path("/proc/self/maps").read_text().splitlines():
        mapped = line.partition("/")[2]
        if mapped.endswith("/" + soname):
            return "/" + mapped
    return None


def _digest(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (
        FileNotFoundError
    ):  # replaced or removed since: cannot be compared, so it counts as different
        return None
    try:
        return sha256_of(descriptor)
    finally:
        os.close(descriptor)
