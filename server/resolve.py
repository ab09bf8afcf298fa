"""Turns a `--model-id` value into an artifact directory, compiling or pulling it once.

Knows nothing of engines or HTTP.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.host import HostCapabilities
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.server.cache_key import CompileOrder, cache_key, compile_order
from infinity_v3.server.children import Children
from infinity_v3.server.config import ModelConfig
from infinity_v3.server.model_source import ModelSource, SourceKind
from infinity_v3.server.pulled import ArtifactUse, PulledArtifact
from infinity_v3.server.registry_child import RegistryChild


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """An artifact directory and what finding it cost.

    Attributes:
        resolve_s: seconds without those of a compile.
        compile_s: what compiling it cost now, 0 when it was there.
        use: of what was pulled; the caller ends it.
    """

    path: Path
    resolve_s: float = 0.0
    compile_s: float = 0.0
    use: ArtifactUse | None = None


_log = logging.getLogger("infinity_v3")


class Resolver:
    """Finds artifacts; blocking, so it runs beside the event loop.

    `cache` holds compiled checkpoints and what was pulled; None = this host has no place for them.
    """

    def __init__(self, cache: Path | None, host: HostCapabilities, children: Children) -> None:
        self.host = host
        self._cache = cache
        self._children = children
        self._pulled: dict[str, PulledArtifact] = {}

    def check(self, source: ModelSource, config: ModelConfig) -> ModelSource:
        """Refuse what would be compiled in vain, before minutes are spent on another model.

        Returns:
            The source; what looks like a hub id is a reference if the registry knows the name.

        Raises:
            InfinityError: no target of that checkpoint would run here, or the registry cannot be
                asked.
        """
        if source.kind is SourceKind.HUB and source.reference is not None:
            source = self._ask_registry(source, source.reference)
        if source.kind in (SourceKind.CHECKPOINT, SourceKind.HUB):
            compile_order(source, config, self.host)
        return source

    def _ask_registry(self, source: ModelSource, reference: Reference) -> ModelSource:
        if not self._children.has_registry:
            return source
        found = self._registry().pull_if_present(reference)
        if found is None:
            return source
        self._pulled[source.model_id] = found
        return replace(source, kind=SourceKind.REFERENCE)

    def resolve(self, source: ModelSource, config: ModelConfig) -> Resolved:
        """The artifact directory of one model.

        Raises:
            UsageError: there is no cache for what has to be compiled or pulled.
            InfinityError: compiling or pulling failed.
        """
        if source.kind is SourceKind.ARTIFACT and source.path is not None:
            return Resolved(path=source.path)
        if source.reference is not None and source.kind is SourceKind.REFERENCE:
            return self._pull(source, source.reference)
        begun_s = time.perf_counter()
        order = compile_order(source, config, self.host)
        folder = self._private_folder("compiled")
        key = cache_key(order, self.host)
        out = folder / key
        with _exclusive(folder / f"{key}.lock"):
            compile_s = self._compile_once(order, out)
        return Resolved(
            path=out, resolve_s=time.perf_counter() - begun_s - compile_s, compile_s=compile_s
        )

    def _pull(self, source: ModelSource, reference: Reference) -> Resolved:
        begun_s = time.perf_counter()
        pulled = self._pulled.pop(source.model_id, None) or self._registry().pull(reference)
        use = self.hold(pulled)
        _log.info("model %s: %s, pulled to %s", source.model_id, pulled.shown, pulled.path)
        return Resolved(path=pulled.path, resolve_s=time.perf_counter() - begun_s, use=use)

    def hold(self, pulled: PulledArtifact) -> ArtifactUse:
        """Keep a pulled artifact in the cache; it is pulled again where another process removed it.

        Raises:
            InfinityError: it cannot be pulled any more.
        """
        use = ArtifactUse(pulled)
        while not use.begin():
            self._registry().pull(Reference(name=pulled.name, id=pulled.id))
        return use

    def _registry(self) -> RegistryChild:
        self._private_folder("pulled")
        assert self._children.registry is not None, "a cache has its children; this is a bug"
        return self._children.registry

    def _compile_once(self, order: CompileOrder, out: Path) -> float:
        """Returns the seconds it took; 0 when another start has done it."""
        if (out / MANIFEST_FILE).exists():
            _log.info("model %s: compiled earlier, found in %s", order.source.model_id, out)
            return 0.0
        begun_s = time.perf_counter()
        self._children.compiler.run(order, out)
        return time.perf_counter() - begun_s

    def _private_folder(self, name: str) -> Path:
        cache = self._cache
        if cache is None:
            raise UsageError(
                "--artifact-cache: the user has no home directory to keep artifacts in; name a "
                "directory"
            )
        folder = cache / name
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
