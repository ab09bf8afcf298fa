"""Where channels point: the log is the truth, the channel's file its index.

A file that lags behind the log belongs to an interrupted move; one that says something else than
the event it names was changed behind the log. Knows nothing of gates.
"""

from dataclasses import dataclass

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.log import MOVES, EventLog
from infinity_v3.artifacts.registry.records import ChannelRecord, Event, encode_record
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import CHECK, names_in, read_record, shown

_REMEDY = "if the log is right, remove this file and promote again what the log says"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelState:
    """A channel at one moment.

    Attributes:
        event: the last move; None = it never pointed anywhere.
        is_interrupted: that move was not completed: the channel's file lags behind the log.
    """

    name: str
    channel: str
    event: Event | None
    is_interrupted: bool = False


def channel_state(storage: RegistryStorage, log: EventLog, name: str, channel: str) -> ChannelState:
    """Read where a channel points.

    Raises:
        RefusedError: the file contradicts the log.
    """
    record = _record(storage, paths.channel(name, channel))
    if record is None:
        event = log.newest("channel", channel, MOVES)
        return ChannelState(
            name=name, channel=channel, event=event, is_interrupted=event is not None
        )
    named = _event_of(storage, log, name, channel, record)
    moves = [event for event in log.after(record.event) if event.channel == channel]
    return ChannelState(
        name=name, channel=channel, event=moves[-1] if moves else named, is_interrupted=bool(moves)
    )


def list_channels(storage: RegistryStorage, log: EventLog, name: str) -> tuple[ChannelState, ...]:
    """Read all channels of a name that point somewhere, by name."""
    channels = channel_names(storage, log, name)
    return tuple(channel_state(storage, log, name, channel) for channel in channels)


def channel_names(storage: RegistryStorage, log: EventLog, name: str) -> tuple[str, ...]:
    """Channels that have a file, and the one that the last event moved; sorted."""
    found = set(names_in(storage, paths.channels(name), ".json"))
    last = log.last()
    if last is not None and last.channel is not None:
        found.add(last.channel)
    return tuple(sorted(found))


def write_channel(storage: RegistryStorage, event: Event) -> None:
    """Let a channel's file say what its last event says."""
    if event.channel is None:
        raise RuntimeError("expected the event of a channel; this is a bug")
    path = paths.channel(event.name, event.channel)
    storage.replace(path, encode_record(channel_record(event), path))


def channel_record(event: Event) -> ChannelRecord:
    """The record that a move leads to."""
    return ChannelRecord(id=event.id, version=event.version, event=event.seq)


def _record(storage: RegistryStorage, path: str) -> ChannelRecord | None:
    try:
        return read_record(storage, path, ChannelRecord)
    except RefusedError as error:
        raise RefusedError(f"{error}; {_REMEDY}; {CHECK}") from error


def _event_of(
    storage: RegistryStorage, log: EventLog, name: str, channel: str, record: ChannelRecord
) -> Event:
    where = shown(storage, paths.channel(name, channel))
    if not 1 <= record.event <= log.last_seq():
        raise RefusedError(
            f"{where}: names event {record.event}, which the log does not have; the log was cut "
            f"off, or the channel was changed behind it; {_REMEDY}; {CHECK}"
        )
    event = log.event(record.event)
    is_move = event.kind in MOVES and event.channel == channel
    if not is_move or channel_record(event) != record:
        raise RefusedError(
            f"{where}: contradicts event {record.event} of the log; the channel was changed behind "
            f"it; {_REMEDY}; {CHECK}"
        )
    return event
