"""An artifact that was pulled into the cache, and who still uses it.

Knows nothing of registries or engines.
"""

import fcntl
import os
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.registry.local_signature import signature_path


@dataclass(frozen=True, slots=True, kw_only=True)
class PulledArtifact:
    """What a reference led to.

    Attributes:
        path: the verified directory.
        id: artifact id, `sha256:<64 hex>`.
        version: None = the reference gives none.
        channel, event: the channel that was asked and the number of its last move; None = the
            reference names none.
    """

    path: Path
    id: str
    name: str
    version: str | None = None
    channel: str | None = None
    event: int | None = None

    @property
    def shown(self) -> str:
        """What it is, for a line of the log."""
        version = "" if self.version is None else f" version {self.version}"
        event = "" if self.event is None else f", event {self.event}"
        return f"{self.name}{version} {self.id}{event}"


class ArtifactUse:
    """Keeps others from removing a pulled artifact while this process uses it.

    A shared lock on a file beside the directory: the kernel drops it with the process.
    """

    def __init__(self, artifact: PulledArtifact) -> None:
        self.artifact = artifact
        self._descriptor: int | None = None

    def begin(self) -> bool:
        """Take the lock; False when somebody has removed the artifact in the meantime.

        Raises:
            RunFailedError: the cache cannot be written to.
        """
        lock = _lock_path(self.artifact.path)
        try:
            self._descriptor = _open(lock)
        except OSError as error:
            raise RunFailedError(f"{lock}: cannot be locked: {error.strerror}") from None
        fcntl.flock(self._descriptor, fcntl.LOCK_SH)
        if (self.artifact.path / MANIFEST_FILE).exists():
            return True
        self.end()
        return False

    def end(self) -> None:
        """Drop the lock; may be called twice."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def remove_unused(artifact: PulledArtifact) -> bool:
    """Remove a pulled artifact that no process uses; whoever wants it later pulls it again.

    Returns:
        Whether it is gone.
    """
    path = artifact.path
    try:
        descriptor = _open(_lock_path(path))
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # At once for everybody else: half a directory would be refused rather than pulled again.
        removed = path.with_name(f".{path.name}.{secrets.token_hex(8)}.removed")
        path.rename(removed)
        signature_path(path).unlink(missing_ok=True)
        shutil.rmtree(removed, ignore_errors=True)
    except OSError:  # somebody uses it, or it cannot be removed
        return False
    finally:
        os.close(descriptor)
    return not path.exists()


def _lock_path(path: Path) -> Path:
    return path.parent / f".{path.name}.use"


def _open(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
