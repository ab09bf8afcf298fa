"""What a registry's versions and logs need of its blobs and manifests. Reads no blob."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.names import is_sha256
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.records import Event, VersionRecord
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import names_in, read_manifest
from infinity_v3.artifacts.registry.versions import BUILD_NOTE, PROFILE_NOTE, list_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What must stay.

    Attributes:
        versions: by name, the versions that are not retired.
        manifests: ids of their artifacts.
        blobs: digests of those artifacts' files, and of policies and documents that logs name.
    """

    versions: Mapping[str, frozenset[str]]
    manifests: frozenset[str]
    blobs: frozenset[str]


def read_holdings(storage: RegistryStorage) -> Holdings:
    """Read all logs, versions and manifests.

    Raises:
        RefusedError: one of them is damaged: what it needs cannot be known.
    """
    versions: dict[str, frozenset[str]] = {}
    manifests: set[str] = set()
    blobs: set[str] = set()
    for name in names_in(storage, paths.NAMES):
        log = EventLog(storage, name)
        for event in log.after(0):
            blobs.update(blobs_of_event(event))
        records = list_versions(storage, log, name)
        versions[name] = frozenset(records)
        for record in records.values():
            blobs.update(blobs_of_record(record))
            manifests.add(record.id)
    for identity in manifests:
        blobs.update(entry.sha256 for entry in read_manifest(storage, identity).files)
    return Holdings(versions=versions, manifests=frozenset(manifests), blobs=frozenset(blobs))


def blobs_of_event(event: Event) -> Iterator[str]:
    """Digests of the blobs that an event names: its policy, and a push's documents."""
    found = (event.policy, event.notes.get(PROFILE_NOTE), event.notes.get(BUILD_NOTE))
    return (sha256 for sha256 in found if sha256 is not None and is_sha256(sha256))


def blobs_of_record(record: VersionRecord) -> Iterator[str]:
    """Digests of the blobs that a version names."""
    return (sha256 for sha256 in (record.profile, record.build) if sha256 is not None)
