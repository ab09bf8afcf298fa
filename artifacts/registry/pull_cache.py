"""Pulled artifacts in a cache directory, one per id. Knows nothing of who opens them."""

import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.registry.local_signature import signature_path, write_local_signature
from infinity_v3.artifacts.registry.pull import find_local_signature
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.store import open_artifact

PULLED = "pulled"


def pulled_path(cache_dir: Path, artifact_id: str) -> Path:
    """Where the cache keeps the artifact of an id."""
    return cache_dir / PULLED / artifact_id.removeprefix("sha256:")


def pull_into_cache(
    registry: Registry,
    resolved: Resolved,
    cache_dir: Path,
    *,
    advance: Callable[[int], None] = lambda _: None,
) -> Path:
    """Return the verified directory of an artifact, pulled where the cache does not have it yet.

    One process at a time pulls an id; the others wait for it. What is there already is trusted
    and hashed like what is pulled; a directory that is not whole any more is pulled again.

    Args:
        registry: where it comes from; its verifier, if any, is asked first.
        resolved: what is wanted.
        cache_dir: the cache; made with mode 0700 where it is absent.
        advance: called with bytes as they are pulled.

    Raises:
        RefusedError: not trusted, or not whole in the registry.
        RunFailedError: the registry cannot be read, or the cache cannot be written.
    """
    registry.check_trust(resolved)
    path = pulled_path(cache_dir, resolved.id)
    with _locked(path):
        if _is_whole(path, resolved.id):
            _renew_signatures(registry, resolved, path)
        else:
            _remove(path)
            registry.pull(resolved, path, advance=advance)
    return path


def _is_whole(path: Path, artifact_id: str) -> bool:
    if not os.path.lexists(path):
        return False
    try:
        artifact = open_artifact(path, digests=DigestPolicy.AUTO)
    except RefusedError:
        return False
    return artifact.artifact_id == artifact_id


def _renew_signatures(registry: Registry, resolved: Resolved, path: Path) -> None:
    """Several versions may be one artifact: beside it lie the signatures of the one asked for."""
    signature = find_local_signature(registry.storage, resolved)
    if signature is None:
        signature_path(path).unlink(missing_ok=True)
    else:
        write_local_signature(path, signature)


def _remove(path: Path) -> None:
    with os_errors_as_run_failed("remove", path):
        signature_path(path).unlink(missing_ok=True)
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.exists():
            shutil.rmtree(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with os_errors_as_run_failed("write", path):
        for folder in (path.parent.parent, path.parent):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Never removed: a process that waits for it must meet the one that comes later.
        descriptor = os.open(path.parent / f".{path.name}.pull", flags, 0o600)
    try:
        with os_errors_as_run_failed("lock", path):
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
