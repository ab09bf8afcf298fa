"""Taking a version back, so that `gc` may free what only it needs. Frees nothing itself."""

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.channels import channel_state
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.moves import UNSET_SEQ, append_event, check_name_of
from infinity_v3.artifacts.registry.records import Event, EventKind
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import names_in
from infinity_v3.artifacts.registry.versions import find_push


def retire(storage: RegistryStorage, log: EventLog, name: str, version: str, actor: str) -> Event:
    """Let a version be found no more; its number is not used again.

    Raises:
        RefusedError: there is no such version, or a channel points to it.
    """
    check_name_of("version", version)

    def make(_: int) -> Event:
        record = find_push(storage, log, name, version)
        if record is None:
            raise RefusedError(f"{name}=={version}: no such version; nothing was changed")
        _check_unused(storage, log, name, version)
        return Event(
            seq=UNSET_SEQ,
            previous=None,
            time="",
            kind=EventKind.RETIRE,
            name=name,
            actor=actor,
            version=version,
            id=record.id,
        )

    event = append_event(storage, log, name, make)
    storage.delete(paths.version(name, version))
    return event


def _check_unused(storage: RegistryStorage, log: EventLog, name: str, version: str) -> None:
    # The log is asked as well: a channel whose file was lost points somewhere all the same.
    moved = {event.channel for event in log.after(0) if event.channel is not None}
    states = [
        channel_state(storage, log, name, channel)
        for channel in sorted(moved.union(names_in(storage, paths.channels(name), ".json")))
    ]
    users = [state.channel for state in states if state.event and state.event.version == version]
    if users:
        raise RefusedError(
            f"{name}=={version}: expected a version that no channel points to, found "
            f"{', '.join(users)}; move {'it' if len(users) == 1 else 'them'} first"
        )
