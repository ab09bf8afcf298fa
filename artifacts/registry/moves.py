"""Writing to a name: one writer after the other, each completing what a killed one left.

Owns the order of event and record. Knows nothing of gates and of blobs.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.names import NAME_RULE, is_name
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.channels import (
    ChannelState,
    channel_state,
    write_channel,
)
from infinity_v3.artifacts.registry.event_signature import sign_event
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.records import Event, EventKind, GateFigure
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.versions import find_version, write_version

UNSET_SEQ = 0
"""Of an event that the log has not numbered yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelMove:
    """An order to let a channel point to a version, after its gates have passed.

    Attributes:
        kind: promotion or rollback.
        actor: id of the signing key, else `unverified:<user>`; a signer's own id replaces it.
        policy: sha256 of the blob with the policy in force.
        against: the channel as the gates saw it; the move is refused where another came since.
            None = whatever it points to.
    """

    name: str
    channel: str
    version: str
    id: str
    kind: EventKind
    actor: str
    policy: str | None = None
    figures: tuple[GateFigure, ...] = ()
    is_ungated: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    signer: Signer | None = None
    against: ChannelState | None = None


def move_channel(storage: RegistryStorage, log: EventLog, order: ChannelMove) -> Event:
    """Let a channel point to a version: the event first, then the channel's file.

    Raises:
        RefusedError: no such version, the channel moved since the gates ran, or the place cannot
            keep two writers apart and nobody said that there is only one.
    """
    check_name_of("channel", order.channel)

    def make(_: int) -> Event:
        return _signed_move(storage, log, order)

    event = append_event(storage, log, order.name, make, signer=order.signer)
    write_channel(storage, event)
    return event


def append_event(
    storage: RegistryStorage,
    log: EventLog,
    name: str,
    make: Callable[[int], Event],
    *,
    signer: Signer | None = None,
) -> Event:
    """Append one event under the name's lock, after completing what a killed writer left.

    Args:
        storage: where the name lies.
        log: its log.
        name: the name.
        make: checks the state of the moment and returns the event; see `EventLog.append`.
        signer: signs the event of a channel, with its number.
    """

    def complete_and_make(last: int) -> Event:
        if last:
            complete(storage, log, log.event(last))
        event = make(last)
        return event if signer is None else sign_event(event, last + 1, signer)

    with storage.lock(name):
        return log.append(complete_and_make)


def complete(storage: RegistryStorage, log: EventLog, last: Event) -> None:
    """Write the record that the last event of a log leads to, where its writer was killed.

    Raises:
        RefusedError: the channel's file says what the log does not; it only moves forward.
    """
    if last.kind is EventKind.PUSH:
        write_version(storage, last)
    elif last.kind is EventKind.RETIRE:
        storage.delete(paths.version(last.name, last.version))
    elif last.channel is not None and _lags(storage, log, last.name, last.channel):
        write_channel(storage, last)


def _lags(storage: RegistryStorage, log: EventLog, name: str, channel: str) -> bool:
    return channel_state(storage, log, name, channel).is_interrupted


def mend_channel(storage: RegistryStorage, log: EventLog, name: str, channel: str) -> None:
    """Let a channel's file say what the log says, where it is absent or lags behind.

    Raises:
        RefusedError: the file contradicts the log.
    """
    with storage.lock(name):
        state = channel_state(storage, log, name, channel)
        if state.event is not None and state.is_interrupted:
            write_channel(storage, state.event)


def check_name_of(what: str, name: str) -> None:
    """Refuse what cannot be a name, before a path is built from it."""
    if not is_name(name):
        raise UsageError(f"expected a {what}'s name, {NAME_RULE}; found {name!a}")


def _signed_move(storage: RegistryStorage, log: EventLog, order: ChannelMove) -> Event:
    state = channel_state(storage, log, order.name, order.channel)
    _check_unchanged(order, state)
    record = find_version(storage, log, order.name, order.version)
    if record is None or record.id != order.id:
        found = record.id if record else "no such version"
        raise RefusedError(
            f"{order.name}=={order.version}: expected {order.id}, found {found}; {order.channel} "
            "was not moved"
        )
    before = state.event
    return Event(
        seq=UNSET_SEQ,
        previous=None,
        time="",
        kind=order.kind,
        name=order.name,
        actor=order.signer.key_id if order.signer else order.actor,
        version=order.version,
        id=order.id,
        channel=order.channel,
        replaced_version=before.version if before else None,
        replaced_id=before.id if before else None,
        policy=order.policy,
        is_ungated=order.is_ungated,
        figures=order.figures,
        notes=order.notes,
    )


def _check_unchanged(order: ChannelMove, state: ChannelState) -> None:
    if order.against is None or order.against.event == state.event:
        return
    moved = f"event {state.event.seq}" if state.event else "nothing"
    raise RefusedError(
        f"{order.name}:{order.channel}: another move came while the gates ran ({moved}); nothing "
        "was changed: run again to compare with what is there now"
    )
