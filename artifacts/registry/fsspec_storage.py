"""A registry's files at any URL that fsspec knows. Knows nothing of what is in them.

Credentials come from the environment, as the library of each store reads them; none is shown.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any, NoReturn

import fsspec
from fsspec.registry import get_filesystem_class, known_implementations

from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.copying import copy_out
from infinity_v3.artifacts.registry.object_writers import (
    ConditionalWriter,
    FolderWriter,
    MemoryWriter,
    ObjectWriter,
    PlainWriter,
    S3Writer,
)
from infinity_v3.artifacts.registry.storage import MAX_READ_BYTES

_BLOCK_BYTES = 16 << 20
_MAX_REASON_CHARS = 200
_LOCAL = frozenset({"file", "local", "memory"})
_S3 = frozenset({"s3", "s3a"})
_GOOGLE = frozenset({"gs", "gcs"})
_CONDITIONAL = _LOCAL | _S3 | _GOOGLE

_USER_INFO = re.compile(r"(?<=://)[^/\s]*@")
_QUERY = re.compile(r"(?<=://)([^\s?]*)\?\S*")


class FsspecStorage:
    """`RegistryStorage` at a URL.

    What is listed or read is never cached. There are no locks: `create` decides who comes first.
    """

    def __init__(self, location: str, *, unsafe_channel_writes: bool = False) -> None:
        """Open a location; no request is sent yet by the usual stores.

        Args:
            location: `protocol://...`, without credentials.
            unsafe_channel_writes: let `create` look first and write then, where the store cannot do
                both at once.

        Raises:
            UsageError: not such a URL, or the package that reads it is not installed.
        """
        self._location = _without_secrets(location)
        self._protocol = location.partition("://")[0]
        self._unsafe_channel_writes = unsafe_channel_writes
        _check_protocol(self._location, self._protocol)
        with self._failures("open", ""):
            # `Any`: fsspec has no types.
            found: tuple[Any, str] = fsspec.core.url_to_fs(location, use_listings_cache=False)
        self._fs = found[0]
        self._root = found[1].rstrip("/")
        self._writer = self._make_writer()

    @property
    def location(self) -> str:
        return self._location

    @property
    def is_local(self) -> bool:
        return self._protocol in _LOCAL

    @property
    def has_conditional_writes(self) -> bool:
        return self._protocol in _CONDITIONAL

    def read(self, path: str) -> bytes | None:
        with self._failures("read", path):
            # First the size: what a store holds may be larger than this machine's memory.
            size = self._size(path)
            if size is None:
                return None
            if size > MAX_READ_BYTES:
                raise RefusedError(
                    f"{self._whole(path)}: expected at most {MAX_READ_BYTES} bytes, found {size}"
                )
            try:
                return bytes(self._fs.cat_file(f"{self._root}/{path}"))
            except FileNotFoundError:
                return None

    def size(self, path: str) -> int | None:
        with self._failures("read", path):
            return self._size(path)

    def modified_s(self, path: str) -> float | None:
        with self._failures("read", path):
            if self._size(path) is None:
                return None
            try:
                return float(self._fs.modified(f"{self._root}/{path}").timestamp())
            except FileNotFoundError:
                return None

    def list(self, folder: str) -> tuple[str, ...]:
        whole = f"{self._root}/{folder}".rstrip("/")
        with self._failures("list", folder):
            self._fs.invalidate_cache()
            try:
                found = self._fs.ls(whole, detail=False)
            except FileNotFoundError:
                return ()
        # Some list the folder itself, or a file by its own name.
        below = f"{whole.strip('/')}/"
        inner = (path.strip("/") for path in found)
        names = {path.removeprefix(below) for path in inner if path.startswith(below)}
        return tuple(sorted(name for name in names if not name.startswith(".")))

    def create(self, path: str, data: bytes) -> bool:
        if not self.has_conditional_writes and not self._unsafe_channel_writes:
            raise RefusedError(
                f"{self._location}: expected a store that writes only what is absent, so that two "
                f"writers cannot overwrite each other, found {self._protocol}; where only one "
                "process writes at a time pass --unsafe-channel-writes"
            )
        with self._failures("write", path):
            return self._writer.create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        with self._failures("write", path):
            self._writer.replace(path, data)

    def delete(self, path: str) -> None:
        with self._failures("remove", path):
            try:
                self._fs.rm_file(f"{self._root}/{path}")
            except FileNotFoundError:
                return

    def upload(self, path: str, source: Path) -> None:
        with self._failures("write", path):
            self._writer.upload(path, source)

    def download(self, path: str, target: Path) -> str | None:
        with self._failures("read", path), self._blocks(path) as blocks:
            return None if blocks is None else copy_out(blocks, target)

    def digest(self, path: str) -> str | None:
        digest = hashlib.sha256()
        with self._failures("read", path), self._blocks(path) as blocks:
            if blocks is None:
                return None
            for block in blocks:
                digest.update(block)
        return digest.hexdigest()

    def lock(self, name: str) -> AbstractContextManager[None]:
        return nullcontext()

    def remove_stale_temporaries(self, older_than_s: float) -> int:
        # Stores keep unfinished uploads out of sight, and drop them by a rule of their own.
        return 0

    def _make_writer(self) -> ObjectWriter:
        if self._protocol in _S3 | _GOOGLE:
            kind = S3Writer if self._protocol in _S3 else ConditionalWriter
            return kind(self._fs, self._root, location=self._location, witness=paths.MARKER)
        if self._protocol == "memory":
            return MemoryWriter(self._fs, self._root)
        if self._protocol in _LOCAL:
            return FolderWriter(self._root)
        return PlainWriter(self._fs, self._root)

    def _size(self, path: str) -> int | None:
        self._fs.invalidate_cache()
        try:
            info: Mapping[str, Any] = self._fs.info(f"{self._root}/{path}")
        except (FileNotFoundError, NotADirectoryError):
            return None
        return int(info["size"]) if info["type"] == "file" else None

    @contextmanager
    def _blocks(self, path: str) -> Iterator[Iterator[bytes] | None]:
        if self._size(path) is None:
            yield None
            return
        if self._protocol == "memory":
            # Its open files are one object, whose position all readers share.
            yield iter([bytes(self._fs.cat_file(f"{self._root}/{path}"))])
            return
        # No cache: each read is one request for as many bytes.
        file = self._fs.open(
            f"{self._root}/{path}", "rb", block_size=_BLOCK_BYTES, cache_type="none"
        )
        with closing(file):
            yield iter(lambda: file.read(_BLOCK_BYTES), b"")

    @contextmanager
    def _failures(self, action: str, path: str) -> Iterator[None]:
        try:
            yield
        except InfinityError:
            raise
        except Exception as error:
            # Each library has classes of its own for "no network", "no credentials", "no bucket".
            self._raise_failed(action, path, error)

    def _raise_failed(self, action: str, path: str, error: Exception) -> NoReturn:
        lines = _without_secrets(str(error)).splitlines() or [""]
        reason = lines[0][:_MAX_REASON_CHARS] or type(error).__name__
        raise RunFailedError(
            f"cannot {action} {self._whole(path)}: {reason} ({type(error).__name__}); check the "
            "address, the network and the credentials"
        ) from error

    def _whole(self, path: str) -> str:
        return f"{self._location}/{path}".rstrip("/")


def _check_protocol(location: str, protocol: str) -> None:
    if "::" in location:
        raise UsageError(f"{location}: expected one URL, found a chain of them")
    try:
        get_filesystem_class(protocol)
    except ValueError:
        raise UsageError(
            f"{location}: expected a path or a URL such as s3://BUCKET/FOLDER, found the unknown "
            f"protocol {protocol!a}"
        ) from None
    except ImportError as error:
        known: Mapping[str, str] = known_implementations[protocol]
        package = known["class"].partition(".")[0]
        remedy = str(error) if package == "fsspec" else f"run `pip install {package}`"
        raise UsageError(
            f"{location}: expected the package that reads {protocol}:// URLs, found none; {remedy}"
        ) from None


def _without_secrets(text: str) -> str:
    """Take user names, passwords and queries out of every URL in a text."""
    return _QUERY.sub(r"\1", _USER_INFO.sub("", text)).rstrip("/")
