"""How files come into stores of different kinds: as a whole, and where asked for only if absent.

Knows fsspec's file systems by the few methods used here, and no library.
"""

import random
import secrets
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.registry.copying import blocks_of
from infinity_v3.artifacts.registry.staged_file import StagedFile

_NUM_ATTEMPTS = 8
_WAIT_S = 0.2
_WRITER_KEY = "infinity-writer"
_EXISTS = frozenset({"PreconditionFailed", "412"})
_CONFLICT = frozenset({"ConditionalRequestConflict", "409"})


class FileSystem(Protocol):
    """What is used of `fsspec.AbstractFileSystem`; paths are whole, without the protocol."""

    def pipe_file(self, path: str, value: bytes, **options: object) -> object: ...

    def put_file(self, lpath: str, rpath: str, **options: object) -> object: ...

    def cat_file(self, path: str) -> bytes: ...

    def metadata(self, path: str, *, refresh: bool) -> Mapping[str, object]: ...

    def exists(self, path: str) -> bool: ...


class ObjectWriter(Protocol):
    """Writes below one root; paths are relative to it. Raises whatever the store's library does."""

    def create(self, path: str, data: bytes) -> bool:
        """Write a file that must not exist; False where it does, and nothing changes."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, whether or not it exists."""
        ...

    def upload(self, path: str, source: Path) -> None:
        """Copy a local file in."""
        ...


class PlainWriter:
    """A store whose writes are whole but never conditional."""

    _upload_options: Mapping[str, object] = {}

    def __init__(self, fs: FileSystem, root: str) -> None:
        self._fs = fs
        self._root = root

    def create(self, path: str, data: bytes) -> bool:
        """Look, then write: two writers at once may both succeed."""
        if self._fs.exists(self._whole(path)):
            return False
        self.replace(path, data)
        return True

    def replace(self, path: str, data: bytes) -> None:
        self._fs.pipe_file(self._whole(path), data)

    def upload(self, path: str, source: Path) -> None:
        with os_errors_as_run_failed("read", source):
            source.open("rb").close()
        self._fs.put_file(str(source), self._whole(path), **self._upload_options)

    def _whole(self, path: str) -> str:
        return f"{self._root}/{path}"


class ConditionalWriter(PlainWriter):
    """A store that takes fsspec's mode "create" as one step, as Google Cloud Storage does."""

    def __init__(self, fs: FileSystem, root: str, *, location: str, witness: str) -> None:
        """Take the store.

        Args:
            fs: the file system of the library.
            root: the folder of the registry in it.
            location: the same as shown to users.
            witness: a file of every registry, on which the store is tried.
        """
        super().__init__(fs, root)
        self._location = location
        self._witness = witness
        self._is_tried = False

    def create(self, path: str, data: bytes) -> bool:
        """Write a file that must not exist.

        Raises:
            RefusedError: the store ignores the condition.
        """
        if not self._is_tried:
            self._try_condition()
        return self._create(path, data)

    def _create(self, path: str, data: bytes) -> bool:
        return self._put_if_absent(path, data)

    def _put_if_absent(self, path: str, data: bytes, **options: object) -> bool:
        for attempt in range(_NUM_ATTEMPTS):
            try:
                self._fs.pipe_file(self._whole(path), data, mode="create", **options)
            except Exception as error:
                # Each library has classes of its own; what is no answer to the condition goes on.
                if isinstance(error, FileExistsError) or _code(error) in _EXISTS:
                    return False
                if attempt + 1 == _NUM_ATTEMPTS or _code(error) not in _CONFLICT:
                    raise
                time.sleep(_WAIT_S * random.uniform(0.5, 1.0))
            else:
                return True
        raise RuntimeError("the last attempt returns or raises; this is a bug")

    def _try_condition(self) -> None:
        """Write a file that exists with its own bytes: a store that takes it checks nothing.

        Older servers that speak S3 ignore the condition in silence.
        """
        try:
            data = self._fs.cat_file(self._whole(self._witness))
        except FileNotFoundError:
            return
        if self._create(self._witness, data):
            raise RefusedError(
                f"{self._location}: expected a store that refuses to overwrite where asked to, "
                "found one that ignores the condition; use a newer server"
            )
        self._is_tried = True


class S3Writer(ConditionalWriter):
    """Amazon S3 and what speaks its protocol.

    Its library repeats a request whose answer was lost, and is then told that the file exists: what
    was written names its writer.
    """

    # Ten parts at a time are in memory; the library's own have 50 MiB.
    _upload_options: Mapping[str, object] = {"chunksize": 16 << 20}

    def _create(self, path: str, data: bytes) -> bool:
        token = secrets.token_hex(16)
        if self._put_if_absent(path, data, Metadata={_WRITER_KEY: token}):
            return True
        try:
            metadata = self._fs.metadata(self._whole(path), refresh=True)
        except FileNotFoundError:
            return False
        return metadata.get(_WRITER_KEY) == token


class MemoryWriter(PlainWriter):
    """The memory of this process; nothing but its own lock keeps its threads apart."""

    _lock = threading.RLock()

    def create(self, path: str, data: bytes) -> bool:
        with self._lock:
            return super().create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        with self._lock:
            super().replace(path, data)

    def upload(self, path: str, source: Path) -> None:
        # At once: what `put_file` writes block by block can be read meanwhile.
        self.replace(path, b"".join(map(bytes, blocks_of(source))))


class FolderWriter:
    """A directory of this machine."""

    def __init__(self, root: str) -> None:
        self._root = Path(root)

    def create(self, path: str, data: bytes) -> bool:
        with StagedFile(self._root, path) as file:
            file.write([data])
            return file.put_if_absent()

    def replace(self, path: str, data: bytes) -> None:
        with StagedFile(self._root, path) as file:
            file.write([data])
            file.put()

    def upload(self, path: str, source: Path) -> None:
        with StagedFile(self._root, path) as file:
            file.write(blocks_of(source))
            file.put()


def _code(error: Exception) -> str:
    """Return a store's own code of an error: S3's answer is its cause, Google's has it itself."""
    response = getattr(error.__cause__, "response", None)
    if isinstance(response, Mapping):
        return str(response.get("Error", {}).get("Code", ""))
    return str(getattr(error, "code", ""))
