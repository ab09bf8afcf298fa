"""Loads the library of our own operators before a model that was linked against it.

Knows nothing of its contents.
"""

import ctypes
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.digest import sha256_of
from infinity_v3.artifacts.manifest import FileEntry
from infinity_v3.runtime.engine_errors import EngineLoadError

_DELETED = " (deleted)"


def load_kernel_library(path: str, entry: FileEntry) -> None:
    """Load `path` so that its SONAME satisfies the models linked against it.

    The SONAME is the file's name.

    Raises:
        EngineLoadError: a library of the same SONAME but other bytes is loaded already, or it does
            not load.
    """
    soname = Path(entry.path).name
    if any(_differs(code, path, entry) for code in _loaded_code(soname)):
        raise EngineLoadError(
            f"{soname}: another library of this name and other bytes is loaded already; "
            "serve the two artifacts from two processes"
        )
    try:
        ctypes.CDLL(path)
    except OSError as error:
        raise EngineLoadError(f"{soname} could not be loaded: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Code:
    """An executable piece of a loaded library: where it lies in memory and in its file."""

    address: int
    num_bytes: int
    offset: int
    file: str


def _loaded_code(soname: str) -> Iterator[_Code]:
    for line in Path("/proc/self/maps").read_text().splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) < 6 or "x" not in fields[1]:
            continue
        file = fields[5]
        if file.removesuffix(_DELETED).endswith("/" + soname):
            start, stop = (int(address, 16) for address in fields[0].split("-"))
            yield _Code(address=start, num_bytes=stop - start, offset=int(fields[2], 16), file=file)


def _differs(code: _Code, path: str, entry: FileEntry) -> bool:
    """Whether loaded code is not that of the file at `path`.

    By digest, or byte by byte when its own file is gone.
    """
    if not code.file.endswith(_DELETED):
        return _digest(code.file) != entry.sha256
    with Path(path).open("rb") as file:
        file.seek(code.offset)
        expected = file.read(code.num_bytes)
    return ctypes.string_at(code.address, len(expected)) != expected


def _digest(path: str) -> str | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # removed this moment: cannot be compared, so it counts as different
        return None
    try:
        return sha256_of(descriptor)
    finally:
        os.close(descriptor)
