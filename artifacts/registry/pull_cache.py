"""Pulled artifacts in a cache directory, one per id. Knows nothing of who opens them.

Several versions may be one id with other profiles: beside a directory a small file tells whose
profile.json and build.json were put there, so that the version asked for brings its own. While it
tells of the same ones, the local files are left alone: a user may have tuned the copy.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import BUILD_FILE, PROFILE_FILE
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.publish import sync_paths
from infinity_v3.artifacts.registry.local_signature import signature_path, write_local_signature
from infinity_v3.artifacts.registry.pull import find_local_signature
from infinity_v3.artifacts.registry.records import MAX_RECORD_BYTES, decode_record, encode_record
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.store import open_artifact

PULLED = "pulled"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Documents:
    """Which documents outside the identity were put into a directory: digests, None = none."""

    profile: str | None
    build: str | None

    @staticmethod
    def of(resolved: Resolved) -> "_Documents":
        return _Documents(profile=resolved.record.profile, build=resolved.record.build)


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
            _renew_documents(registry, resolved, path)
            _renew_signatures(registry, resolved, path)
        else:
            _remove(path)
            registry.pull(resolved, path, advance=advance)
            _write_documents(path, _Documents.of(resolved))
    return path


def _is_whole(path: Path, artifact_id: str) -> bool:
    if not os.path.lexists(path):
        return False
    try:
        artifact = open_artifact(path, digests=DigestPolicy.AUTO)
    except RefusedError:
        return False
    return artifact.artifact_id == artifact_id


def _renew_documents(registry: Registry, resolved: Resolved, path: Path) -> None:
    """Put the documents of the version asked for there, unless its own were put there before."""
    wanted = _Documents.of(resolved)
    if _read_documents(path) == wanted:
        return
    for name, sha256 in ((PROFILE_FILE, wanted.profile), (BUILD_FILE, wanted.build)):
        if sha256 is not None:
            _replace(path / name, registry.document(sha256))
        else:
            with os_errors_as_run_failed("remove", path / name):
                (path / name).unlink(missing_ok=True)
    _write_documents(path, wanted)


def _documents_path(path: Path) -> Path:
    return path.parent / f"{path.name}.documents.json"


def _read_documents(path: Path) -> _Documents | None:
    """None = it is not known whose documents are there."""
    source = _documents_path(path)
    with os_errors_as_run_failed("read", source):
        try:
            with source.open("rb") as file:
                data = file.read(MAX_RECORD_BYTES)
        except FileNotFoundError:
            return None
    try:
        return decode_record(data, _Documents, str(source))
    except RefusedError:
        return None


def _write_documents(path: Path, documents: _Documents) -> None:
    target = _documents_path(path)
    _replace(target, encode_record(documents, str(target)))


def _replace(target: Path, data: bytes) -> None:
    """Write a file in one step, durably."""
    folder = target.parent
    temporary = folder.parent / f".{folder.name}.{target.name}.{secrets.token_hex(8)}"
    with os_errors_as_run_failed("write", target):
        try:
            temporary.write_bytes(data)
            sync_paths([temporary])
            temporary.replace(target)
            sync_paths([folder])
        finally:
            temporary.unlink(missing_ok=True)


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
        _documents_path(path).unlink(missing_ok=True)
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
