"""From an artifact directory into a registry: blobs, manifest, event, version, in this order.

What is there already is checked and not sent again. Knows nothing of channels.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.digest import DigestPolicy, FileState, sha256_beneath
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import BUILD_FILE, PROFILE_FILE
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.moves import UNSET_SEQ, append_event, check_name_of
from infinity_v3.artifacts.registry.records import Event, EventKind, VersionRecord
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.version_signatures import write_signature
from infinity_v3.artifacts.registry.versions import (
    BUILD_NOTE,
    PROFILE_NOTE,
    find_push,
    was_pushed,
    write_version,
)
from infinity_v3.artifacts.store import Artifact, open_artifact

Advance = Callable[[int], None]
"""Called with the bytes that were dealt with since the last call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushReport:
    """What a push did.

    Attributes:
        is_new: False = the registry had this version of this id already.
        event: number of the push event.
        sent_files, sent_bytes: what was uploaded.
        reused_files, reused_bytes: what was there already and was found whole.
        healed: paths of files that were there with another content, and were replaced.
        restored: paths of files of a known version that were lost, and were written again.
        is_signed: a signature was added that the version did not have before.
    """

    name: str
    version: str
    id: str
    is_new: bool
    event: int
    sent_files: int = 0
    sent_bytes: int = 0
    reused_files: int = 0
    reused_bytes: int = 0
    healed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    is_signed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PushOrder:
    """An artifact to be pushed; `actor` is who does it, unless a signer says so."""

    artifact: Artifact
    version: str
    actor: str
    signer: Signer | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _LocalFile:
    path: Path
    sha256: str
    num_bytes: int
    state: FileState


class _KnownError(Exception):
    """The version is there already and has the same id: nothing is to be appended."""

    def __init__(self, record: VersionRecord) -> None:
        super().__init__(record)
        self.record = record


@dataclass(slots=True)
class _Tally:
    sent_files: int = 0
    sent_bytes: int = 0
    reused_files: int = 0
    reused_bytes: int = 0
    healed: tuple[str, ...] = ()
    written: tuple[str, ...] = ()


def push(storage: RegistryStorage, log: EventLog, order: PushOrder, advance: Advance) -> PushReport:
    """Verify an artifact, send what is missing and name it by a version.

    Raises:
        RefusedError: the artifact is not whole, or the version is taken by another id.
        RunFailedError: the artifact cannot be read or the registry cannot be written to; what was
            sent is referenced by nothing, and used by the next push.
    """
    check_name_of("version", order.version)
    # Nothing is loaded from it, so it does not matter who else could write to it.
    artifact = open_artifact(order.artifact.path, digests=DigestPolicy.ALWAYS, allow_shared=True)
    if artifact.artifact_id != order.artifact.artifact_id:
        raise RefusedError(f"{artifact.path}: another artifact was put here meanwhile; push again")
    _version_of(storage, log, order)
    tally = _Tally()
    documents = _documents(artifact)
    for file in (*_listed(artifact), *documents.values()):
        _send(storage, file, tally)
        advance(file.num_bytes)
    _send_manifest(storage, artifact, tally)
    seq, is_new = _name(storage, log, order, documents, tally)
    name, version, identity = _key(order)
    is_signed = order.signer is not None and write_signature(
        storage, name, version, identity, order.signer
    )
    return PushReport(
        name=name,
        version=version,
        id=identity,
        is_new=is_new,
        event=seq,
        sent_files=tally.sent_files,
        sent_bytes=tally.sent_bytes,
        reused_files=tally.reused_files,
        reused_bytes=tally.reused_bytes,
        healed=tally.healed,
        restored=() if is_new else tally.written,
        is_signed=is_signed,
    )


def push_bytes(artifact: Artifact) -> int:
    """Bytes that `advance` of a push adds up to, the documents outside the identity included."""
    listed = sum(entry.num_bytes for entry in artifact.manifest.files)
    return listed + sum(file.num_bytes for file in _documents(artifact).values())


def _version_of(storage: RegistryStorage, log: EventLog, order: PushOrder) -> VersionRecord | None:
    """The record of the same version and id; anything else under this version is refused."""
    name, version, identity = _key(order)
    record = find_push(storage, log, name, version)
    if record is not None and record.id != identity:
        raise RefusedError(
            f"{name}=={version}: this version is {record.id}, not {identity}; a version never "
            "changes: choose another one"
        )
    if record is None and (used := was_pushed(log, version)) is not None:
        raise RefusedError(
            f"{name}=={version}: event {used.seq} of the log used this version for {used.id} "
            f"({used.kind.value}); a version never changes: choose another one"
        )
    return record


def _name(
    storage: RegistryStorage,
    log: EventLog,
    order: PushOrder,
    documents: Mapping[str, _LocalFile],
    tally: _Tally,
) -> tuple[int, bool]:
    """Append the push event, unless it is there; its number, and whether it is new."""
    name, version, identity = _key(order)

    def make(_: int) -> Event:
        known = _version_of(storage, log, order)
        if known is not None:
            path = paths.version(name, version)
            if storage.size(path) is None:
                write_version(storage, log.event(known.event))
                tally.written = (*tally.written, path)
            raise _KnownError(known)
        return Event(
            seq=UNSET_SEQ,
            previous=None,
            time="",
            kind=EventKind.PUSH,
            name=name,
            actor=order.signer.key_id if order.signer else order.actor,
            version=version,
            id=identity,
            notes={key: file.sha256 for key, file in documents.items()},
        )

    try:
        event = append_event(storage, log, name, make)
    except _KnownError as known:
        return known.record.event, False
    write_version(storage, event)
    return event.seq, True


def _key(order: PushOrder) -> tuple[str, str, str]:
    return order.artifact.manifest.name, order.version, order.artifact.artifact_id


def _listed(artifact: Artifact) -> Iterator[_LocalFile]:
    """The files of the manifest, each content once."""
    seen: set[str] = set()
    for entry in artifact.manifest.files:
        path = artifact.path / entry.path
        with os_errors_as_run_failed("read", path):
            state = FileState.of(path.lstat())
        if entry.sha256 not in seen:
            seen.add(entry.sha256)
            yield _LocalFile(path=path, sha256=entry.sha256, num_bytes=entry.num_bytes, state=state)


def _documents(artifact: Artifact) -> dict[str, _LocalFile]:
    """profile.json and build.json by the keys of the event's notes, where there are such files."""
    found: dict[str, _LocalFile] = {}
    for key, name in ((PROFILE_NOTE, PROFILE_FILE), (BUILD_NOTE, BUILD_FILE)):
        if not os.path.lexists(artifact.path / name):
            continue
        with os_errors_as_run_failed("read", artifact.path / name):
            digest, state = sha256_beneath(artifact.path, name)
        if state is None:
            raise RefusedError(f"{artifact.path / name}: it changed while it was read; push again")
        found[key] = _LocalFile(
            path=artifact.path / name, sha256=digest, num_bytes=state.num_bytes, state=state
        )
    return found


def _send(storage: RegistryStorage, file: _LocalFile, tally: _Tally) -> None:
    path = paths.blob(file.sha256)
    size = storage.size(path)
    if size == file.num_bytes and (not storage.is_local or storage.digest(path) == file.sha256):
        tally.reused_files += 1
        tally.reused_bytes += file.num_bytes
        return
    storage.upload(path, file.path)
    _check_sent(storage, path, file)
    tally.sent_files += 1
    tally.sent_bytes += file.num_bytes
    if size is not None:
        tally.healed = (*tally.healed, path)
    else:
        tally.written = (*tally.written, path)


def _check_sent(storage: RegistryStorage, path: str, file: _LocalFile) -> None:
    """A file that changed between its check and its upload must not stay under its old digest."""
    with os_errors_as_run_failed("read", file.path):
        is_same = FileState.of(file.path.lstat()) == file.state
    if not is_same or storage.size(path) != file.num_bytes:
        storage.delete(path)
        raise RefusedError(f"{file.path}: it changed while it was pushed; push again")


def _send_manifest(storage: RegistryStorage, artifact: Artifact, tally: _Tally) -> None:
    path = paths.manifest(artifact.artifact_id)
    data = encode_manifest(artifact.manifest)
    found = storage.read(path)
    if found == data:
        return
    storage.replace(path, data)
    if found is None:
        tally.written = (*tally.written, path)
    else:
        tally.healed = (*tally.healed, path)
