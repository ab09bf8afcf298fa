"""Versions of a name: what each is, and that the log says the same.

Knows nothing of channels and of blobs.
"""

from collections.abc import Iterable, Sequence

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.names import is_sha256
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.records import Event, EventKind, VersionRecord, encode_record
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import (
    CHECK,
    names_in,
    parse_record,
    read_many,
    read_record,
    shown,
)

PROFILE_NOTE = "profile"
BUILD_NOTE = "build"
"""Keys of a push event's notes: the blobs that its version record names."""


def find_version(
    storage: RegistryStorage, log: EventLog, name: str, version: str
) -> VersionRecord | None:
    """Read a version, None where there is none or it was retired.

    A push that was killed behind its event counts: the log has it, and the next writer completes
    the record.

    Raises:
        RefusedError: the record contradicts the event that it names.
    """
    record = read_record(storage, paths.version(name, version), VersionRecord)
    record = _in_force(log.last(), version, record)
    if record is not None:
        check_version(storage, log, name, version, record)
    return record


def find_push(
    storage: RegistryStorage, log: EventLog, name: str, version: str
) -> VersionRecord | None:
    """Like `find_version`, but where the record of a version was lost, the log tells it."""
    record = find_version(storage, log, name, version)
    if record is None:
        used = was_pushed(log, version)
        return record_of(used) if used is not None and used.kind is EventKind.PUSH else None
    return record


def check_version(
    storage: RegistryStorage, log: EventLog, name: str, version: str, record: VersionRecord
) -> None:
    """Refuse a record that says something else than its push event."""
    where = shown(storage, paths.version(name, version))
    if record.event < 1:
        raise RefusedError(f"{where}: expected the number of an event, found {record.event}")
    event = log.event(record.event)
    if event.kind is not EventKind.PUSH or event.version != version or record_of(event) != record:
        raise RefusedError(
            f"{where}: contradicts event {record.event} of the log, which says {event.kind.value} "
            f"of version {event.version}, {event.id}; it was changed behind the log; {CHECK}"
        )


def list_versions(storage: RegistryStorage, log: EventLog, name: str) -> dict[str, VersionRecord]:
    """Read all versions of a name that are not retired, oldest push first."""
    found = list(names_in(storage, paths.versions(name), ".json"))
    last = log.last()
    if last is not None and last.version not in found:
        found.append(last.version)
    read = _read_all(storage, name, found)
    log.fetch(record.event for record in read.values() if record and record.event > 0)
    kept: list[tuple[int, str, VersionRecord]] = []
    for version in found:
        record = _in_force(last, version, read[version])
        if record is not None:
            check_version(storage, log, name, version, record)
            kept.append((record.event, version, record))
    return {version: record for _, version, record in sorted(kept, key=lambda item: item[0])}


def record_of(event: Event) -> VersionRecord:
    """The record that a push event leads to."""
    return VersionRecord(
        id=event.id,
        profile=_blob_note(event, PROFILE_NOTE),
        build=_blob_note(event, BUILD_NOTE),
        event=event.seq,
    )


def live_pushes(events: Iterable[Event]) -> dict[str, Event]:
    """Push events of the versions that were not retired, from all events of a name."""
    found: dict[str, Event] = {}
    for event in events:
        if event.kind is EventKind.PUSH:
            found[event.version] = event
        elif event.kind is EventKind.RETIRE:
            found.pop(event.version, None)
    return found


def write_version(storage: RegistryStorage, event: Event) -> None:
    """Create the record of a push event, where it is not there yet."""
    path = paths.version(event.name, event.version)
    storage.create(path, encode_record(record_of(event), path))


def was_pushed(log: EventLog, version: str) -> Event | None:
    """The newest push or retirement of a version, None where its number was never used."""
    return log.newest("version", version, (EventKind.PUSH, EventKind.RETIRE))


def _read_all(
    storage: RegistryStorage, name: str, versions: Sequence[str]
) -> dict[str, VersionRecord | None]:
    files = [paths.version(name, version) for version in versions]
    return {
        version: None if data is None else parse_record(storage, path, data, VersionRecord)
        for version, path, data in zip(versions, files, read_many(storage, files), strict=True)
    }


def _in_force(
    last: Event | None, version: str, record: VersionRecord | None
) -> VersionRecord | None:
    """The record after an interrupted push or retirement, which only the last event can be."""
    if last is None or last.version != version:
        return record
    if last.kind is EventKind.RETIRE:
        return None
    return record_of(last) if last.kind is EventKind.PUSH and record is None else record


def _blob_note(event: Event, key: str) -> str | None:
    value = event.notes.get(key)
    return value if value is not None and is_sha256(value) else None
