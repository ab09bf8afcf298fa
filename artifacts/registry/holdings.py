"""What a registry's versions and logs need of its blobs and manifests. Reads no blob."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.names import is_sha256
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.records import Event, VersionRecord
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import artifact_names, read_manifest, shown
from infinity_v3.artifacts.registry.versions import (
    BUILD_NOTE,
    PROFILE_NOTE,
    list_versions,
    live_pushes,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What must stay.

    Attributes:
        versions: by name, the versions that are not retired.
        manifests: ids of their artifacts, and of what the last move of each channel points to.
        blobs: digests of those artifacts' files, and of policies and documents that logs name.
    """

    versions: Mapping[str, frozenset[str]]
    manifests: frozenset[str]
    blobs: frozenset[str]


def read_holdings(storage: RegistryStorage) -> Holdings:
    """Read all logs, versions and manifests.

    Raises:
        RefusedError: one of them is damaged or lost: what it needs cannot be known.
    """
    versions: dict[str, frozenset[str]] = {}
    manifests: set[str] = set()
    blobs: set[str] = set()
    has_events = False
    for name in artifact_names(storage):
        log = EventLog(storage, name)
        events = log.after(0)
        has_events = has_events or bool(events)
        for event in events:
            blobs.update(blobs_of_event(event))
        records = list_versions(storage, log, name)
        _check_records(storage, live_pushes(events), records)
        moved = {event.channel: event.id for event in events if event.channel is not None}
        manifests.update(moved.values())
        versions[name] = frozenset(records)
        for record in records.values():
            blobs.update(blobs_of_record(record))
            manifests.add(record.id)
    if not has_events:
        _check_empty(storage)
    for identity in manifests:
        blobs.update(entry.sha256 for entry in read_manifest(storage, identity).files)
    return Holdings(versions=versions, manifests=frozenset(manifests), blobs=frozenset(blobs))


def _check_records(
    storage: RegistryStorage, pushed: Mapping[str, Event], records: Mapping[str, VersionRecord]
) -> None:
    """Refuse where a version that the log has lost its record."""
    for version, event in pushed.items():
        if version not in records:
            where = shown(storage, paths.version(event.name, version))
            raise RefusedError(
                f"{where}: expected the record of a version that event {event.seq} pushed, found "
                f"none; push {event.id} as {event.name}=={version} again to mend it, or retire it"
            )


def _check_empty(storage: RegistryStorage) -> None:
    """Refuse artifacts without any log: it is more likely that the logs were lost."""
    if storage.list(paths.MANIFESTS) or storage.list(paths.BLOBS):
        raise RefusedError(
            f"{shown(storage, paths.NAMES)}: expected the log of at least one name, found none "
            "beside stored files; put the folder back, or, where a first push was interrupted, "
            "push again"
        )


def blobs_of_event(event: Event) -> Iterator[str]:
    """Digests of the blobs that an event names: its policy, and a push's documents."""
    found = (event.policy, event.notes.get(PROFILE_NOTE), event.notes.get(BUILD_NOTE))
    return (sha256 for sha256 in found if sha256 is not None and is_sha256(sha256))


def blobs_of_record(record: VersionRecord) -> Iterator[str]:
    """Digests of the blobs that a version names."""
    return (sha256 for sha256 in (record.profile, record.build) if sha256 is not None)
