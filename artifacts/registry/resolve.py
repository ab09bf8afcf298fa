"""From a reference to a version and an artifact id. Reads records, no blobs."""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.channels import ChannelState, channel_state, list_channels
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.records import Event, VersionRecord
from infinity_v3.artifacts.registry.reference import DEFAULT_CHANNEL, Reference
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import CHECK, names_in, read_manifest, shown
from infinity_v3.artifacts.registry.versions import find_version, list_versions, was_pushed
from infinity_v3.artifacts.spelling import nearest

SHOWN = 8
"""Names, versions or channels that a message lists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """What a reference stands for at one moment.

    Attributes:
        record: the version's record, checked against its push event.
        channel, event: the channel and its last event, where the reference went through one.
    """

    name: str
    version: str
    id: str
    record: VersionRecord
    channel: str | None = None
    event: Event | None = None


def resolve(storage: RegistryStorage, log: EventLog, reference: Reference) -> Resolved:
    """Find what a reference stands for.

    Raises:
        RefusedError: there is no such name, channel, version or id, or records contradict each
            other; names what there is instead.
    """
    _check_name(storage, log, reference)
    resolved = _find(storage, log, reference)
    manifest = read_manifest(storage, resolved.id)
    if manifest.name != reference.name:
        raise RefusedError(
            f"{reference.text}: expected the manifest of {reference.name}, found one of "
            f"{manifest.name} in {shown(storage, paths.manifest(resolved.id))}; {CHECK}"
        )
    return resolved


def _find(storage: RegistryStorage, log: EventLog, reference: Reference) -> Resolved:
    if reference.channel is not None:
        state = channel_state(storage, log, reference.name, reference.channel)
        return _of_channel(storage, log, reference, state)
    if reference.version is not None:
        return _of_version(storage, log, reference, reference.version)
    if reference.id is not None:
        return _of_id(storage, log, reference, reference.id)
    return _of_name(storage, log, reference)


def _of_channel(
    storage: RegistryStorage, log: EventLog, reference: Reference, state: ChannelState
) -> Resolved:
    event = state.event
    if event is None:
        raise RefusedError(
            f"{reference.text}: no such channel{_listed_channels(storage, log, reference.name)}"
        )
    record = find_version(storage, log, reference.name, event.version)
    if record is None or record.id != event.id:
        raise RefusedError(
            f"{reference.text}: its last event says version {event.version}, {event.id}, but "
            f"{shown(storage, paths.version(reference.name, event.version))} says "
            f"{record.id if record else 'nothing'}; {CHECK}"
        )
    return _resolved(reference.name, event.version, record, channel=state.channel, event=event)


def _of_version(
    storage: RegistryStorage, log: EventLog, reference: Reference, version: str
) -> Resolved:
    record = find_version(storage, log, reference.name, version)
    if record is not None:
        return _resolved(reference.name, version, record)
    used = was_pushed(log, version)
    if used is not None:
        raise RefusedError(
            f"{reference.text}: {_gone(storage, used)}{_versions(storage, log, reference)}"
        )
    raise RefusedError(f"{reference.text}: no such version{_versions(storage, log, reference)}")


def _of_id(
    storage: RegistryStorage, log: EventLog, reference: Reference, identity: str
) -> Resolved:
    versions = list_versions(storage, log, reference.name)
    for version, record in reversed(versions.items()):
        if record.id == identity:
            return _resolved(reference.name, version, record)
    raise RefusedError(
        f"{reference.text}: no version has this id{_versions(storage, log, reference)}"
    )


def _of_name(storage: RegistryStorage, log: EventLog, reference: Reference) -> Resolved:
    state = channel_state(storage, log, reference.name, DEFAULT_CHANNEL)
    if state.event is not None:
        return _of_channel(storage, log, reference, state)
    versions = list_versions(storage, log, reference.name)
    if len(versions) == 1:
        ((version, record),) = versions.items()
        return _resolved(reference.name, version, record)
    raise RefusedError(
        f"{reference.text}: expected a channel {DEFAULT_CHANNEL} or a single version, found "
        f"{len(versions)} versions; give name:channel or name==version"
        f"{_versions(storage, log, reference)}{_listed_channels(storage, log, reference.name)}"
    )


def _resolved(
    name: str,
    version: str,
    record: VersionRecord,
    *,
    channel: str | None = None,
    event: Event | None = None,
) -> Resolved:
    return Resolved(
        name=name, version=version, id=record.id, record=record, channel=channel, event=event
    )


def _check_name(storage: RegistryStorage, log: EventLog, reference: Reference) -> None:
    if log.last_seq():
        return
    known = names_in(storage, paths.NAMES)
    listed = f"; names here: {_some(known)}" if known else "; it holds no artifacts yet"
    raise RefusedError(
        f"{reference.text}: no such name in {storage.location}{nearest(reference.name, known)}"
        f"{listed}"
    )


def _gone(storage: RegistryStorage, used: Event) -> str:
    if used.kind.value == "retire":
        return f"this version was retired on {used.time} (event {used.seq})"
    where = shown(storage, paths.version(used.name, used.version))
    return f"event {used.seq} pushed it, but {where} is absent; {CHECK}"


def _versions(storage: RegistryStorage, log: EventLog, reference: Reference) -> str:
    versions = tuple(reversed(list_versions(storage, log, reference.name)))
    return f"; versions: {_some(versions)}" if versions else "; no version is left"


def _listed_channels(storage: RegistryStorage, log: EventLog, name: str) -> str:
    channels = tuple(state.channel for state in list_channels(storage, log, name))
    return f"; channels: {_some(channels)}" if channels else "; it has no channels"


def _some(words: tuple[str, ...]) -> str:
    more = f" and {len(words) - SHOWN} more" if len(words) > SHOWN else ""
    return ", ".join(words[:SHOWN]) + more
