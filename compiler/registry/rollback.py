"""`registry rollback`."""

from collections.abc import Sequence
from pathlib import Path

import click

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.names import NAME_RULE, is_name
from infinity_v3.artifacts.registry.channels import ChannelState
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.records import Event, EventKind
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.rollback import Place
from infinity_v3.artifacts.typed_json import to_json
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.actor import actor_of
from infinity_v3.compiler.registry.keys import check_key_given, sign_key_option, signer_of
from infinity_v3.compiler.registry.output import SHORT_ID_CHARS, print_result, short_id
from infinity_v3.compiler.registry.place import RegistryPlace, registry_write_options


@click.command()
@click.argument("name")
@click.option("--channel", required=True, metavar="C", help="The channel to move.")
@click.option(
    "--to",
    "to_id",
    metavar="ID",
    help="Go back to this artifact id, 12 or more of its digits, instead of to the one before. The "
    "channel must have pointed to it.",
)
@sign_key_option("Sign the move with this Ed25519 key, as servers that require signatures need.")
@registry_write_options
@json_option
def rollback(
    place: RegistryPlace,
    name: str,
    channel: str,
    to_id: str | None,
    sign_key: Path | None,
    is_json: bool,
) -> None:
    """Let a channel of NAME point to what it pointed to before, without running gates.

    Again goes further back; versions that were retired since are passed over.
    """
    signer = signer_of(sign_key)
    registry = place.open()
    state = _state(registry, name, channel)
    check_key_given(state, signer)
    version, identity = _target(registry, state, to_id)
    event = registry.move_channel(
        ChannelMove(
            name=name,
            channel=channel,
            version=version,
            id=identity,
            kind=EventKind.ROLLBACK,
            actor=actor_of(signer),
            signer=signer,
            against=state,
        )
    )
    document = {"registry": registry.location, "event": to_json(event)}
    print_result(document, _text(event), is_json=is_json)


def _state(registry: Registry, name: str, channel: str) -> ChannelState:
    for word in (name, channel):
        if not is_name(word):
            raise RefusedError(f"{word!a}: expected a name, {NAME_RULE}")
    state = registry.channel(name, channel)
    if state.event is None:
        channels = ", ".join(other.channel for other in registry.channels(name)) or "none"
        raise RefusedError(f"{name}:{channel}: no such channel; channels: {channels}")
    return state


def _target(registry: Registry, state: ChannelState, to_id: str | None) -> Place:
    if to_id is not None:
        return _known(registry, state, to_id)
    before = registry.places_before(state.name, state.channel)
    if not before:
        raise RefusedError(
            f"{state.name}:{state.channel}: expected something it pointed to before, found nothing "
            "that is still there"
        )
    return before[-1]


def _known(registry: Registry, state: ChannelState, to_id: str) -> Place:
    """The newest version that the channel pointed to under this id."""
    digits = to_id.removeprefix("sha256:")
    kept = registry.versions(state.name)
    places = [
        (event.version, event.id)
        for event in registry.events(state.name)
        if event.channel == state.channel and event.version in kept
    ]
    found = [place for place in places if place[1].removeprefix("sha256:").startswith(digits)]
    if len(digits) < SHORT_ID_CHARS or len({identity for _, identity in found}) != 1:
        raise RefusedError(
            f"--to {to_id}: expected {SHORT_ID_CHARS} or more digits of an id that "
            f"{state.name}:{state.channel} pointed to, which are {_ids(places)}"
        )
    return found[-1]


def _ids(places: Sequence[Place]) -> str:
    return ", ".join(dict.fromkeys(short_id(identity) for _, identity in places)) or "none"


def _text(event: Event) -> str:
    return (
        f"{event.name}:{event.channel}\n  {event.version}, was {event.replaced_version}\n"
        f"  {event.id}\n  event {event.seq} by {event.actor}\n"
    )
