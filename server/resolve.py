"""Turns a `--model-id` value into an artifact directory, compiling a checkpoint once.

Knows nothing of engines or HTTP.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.server.cache_key import CompileOrder, cache_key, compile_order
from infinity_v3.server.compile_child import CompileChild
from infinity_v3.server.config import ModelConfig
from infinity_v3.server.model_source import ModelSource, SourceKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """An artifact directory and what finding it cost.

    Attributes:
        resolve_s: seconds without those of a compile.
        compile_s: what compiling it cost now, 0 when it was there.
    """

    path: Path
    resolve_s: float = 0.0
    compile_s: float = 0.0


_log = logging.getLogger("infinity_v3")


class Resolver:
    """Finds artifacts; blocking, so it runs beside the event loop.

    `cache` holds compiled checkpoints; None = this host has no place for them.
    """

    def __init__(self, cache: Path | None, host: HostCapabilities, child: CompileChild) -> None:
        self._cache = cache
        self._host = host
        self._child = child

    def check(self, source: ModelSource, config: ModelConfig) -> None:
        """Refuse what would be compiled in vain, before minutes are spent on another model.

        Raises:
            InfinityError: no target of that checkpoint would run here.
        """
        if source.kind is not SourceKind.ARTIFACT:
            compile_order(source, config, self._host)

    def resolve(self, source: ModelSource, config: ModelConfig) -> Resolved:
        """The artifact directory of one model.

        Raises:
            UsageError: it is a checkpoint and there is no cache for it.
            InfinityError: compiling failed.
        """
        if source.kind is SourceKind.ARTIFACT and source.path is not None:
            return Resolved(path=source.path)
        begun_s = time.perf_counter()
        order = compile_order(source, config, self._host)
        folder = self._private_folder()
        key = cache_key(order, self._host)
        out = folder / key
        with _exclusive(folder / f"{key}.lock"):
            compile_s = self._compile_once(order, out)
        return Resolved(
            path=out, resolve_s=time.perf_counter() - begun_s - compile_s, compile_s=compile_s
        )

    def _compile_once(self, order: CompileOrder, out: Path) -> float:
        """Returns the seconds it took; 0 when another start has done it."""
        if (out / MANIFEST_FILE).exists():
            _log.info("model %s: compiled earlier, found in %s", order.source.model_id, out)
            return 0.0
        begun_s = time.perf_counter()
        self._child.run(order, out)
        return time.perf_counter() - begun_s

    def _private_folder(self) -> Path:
        cache = self._cache
        if cache is None:
            raise UsageError(
                "--artifact-cache: the user has no home directory to keep compiled checkpoints in; "
                "name a directory"
            )
        folder = cache / "compiled"
        try:
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            owner = cache.stat().st_uid
        except OSError as error:
            raise RunFailedError(
                f"--artifact-cache {cache}: cannot be used: {error.strerror}"
            ) from None
        if owner != os.getuid():
            raise RefusedError(
                f"--artifact-cache {cache}: belongs to user {owner}, not to {os.getuid()}; "
                "whoever owns it could run code here: choose a directory of your own"
            )
        return folder


@contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    """Hold a lock file; a second server waits here until the first has compiled."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise RunFailedError(f"{path}: cannot be locked: {error.strerror}") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _log.info("%s: another server compiles the same; waiting for it", path)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
