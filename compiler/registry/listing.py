"""`registry list`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.channels import ChannelState
from infinity_v3.artifacts.registry.records import Event, VersionRecord
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.exits import VerdictError
from infinity_v3.compiler.registry.output import print_result, table
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options

ABSENT = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    name: str
    versions: Mapping[str, VersionRecord]
    channels: tuple[ChannelState, ...]
    changed: str


@click.command("list")
@registry_options
@json_option
def list_names(place: RegistryPlace, is_json: bool) -> None:
    """List the names in the registry, their newest versions and their channels.

    Damaged ones are left out and named, and end the command with 3.
    """
    registry = place.open()
    damage: dict[str, RefusedError] = {}
    rows = list(_rows(registry, damage))
    document = {
        "registry": registry.location,
        "names": [_to_json(row) for row in rows],
        "damaged": list(damage),
    }
    print_result(document, _text(rows) or _nothing(registry, damage), is_json=is_json)
    if damage:
        first = next(iter(damage.values()))
        raise VerdictError(RefusedError(f"damaged: {', '.join(damage)}: {first}"))


def _rows(registry: Registry, damage: dict[str, RefusedError]) -> Iterator[_Row]:
    """One row per name that can be read; what cannot be read goes to `damage` by its name."""
    for name in registry.names():
        try:
            last = registry.last_event(name)
            # A first push that was killed leaves an empty folder.
            if last is not None:
                yield _row(registry, name, last, damage)
        except RefusedError as error:
            damage[name] = error


def _row(registry: Registry, name: str, last: Event, damage: dict[str, RefusedError]) -> _Row:
    channels: list[ChannelState] = []
    for channel in registry.channel_names(name):
        try:
            channels.append(registry.channel(name, channel))
        except RefusedError as error:
            damage[f"{name}:{channel}"] = error
    return _Row(
        name=name,
        versions=registry.versions(name),
        channels=tuple(channels),
        changed=last.time,
    )


def _nothing(registry: Registry, damage: dict[str, RefusedError]) -> str:
    return "" if damage else f"{registry.location}: empty\n"


def _to_json(row: _Row) -> dict[str, object]:
    return {
        "name": row.name,
        "versions": [
            {"version": version, "id": record.id} for version, record in row.versions.items()
        ],
        "channels": {
            state.channel: {"version": state.event.version, "id": state.event.id}
            for state in row.channels
            if state.event is not None
        },
        "changed": row.changed,
    }


def _text(rows: list[_Row]) -> str:
    return table(
        ("name", "versions", "newest", "channels", "changed"),
        [
            (
                row.name,
                str(len(row.versions)),
                next(reversed(list(row.versions)), ABSENT),
                ", ".join(
                    f"{state.channel}={state.event.version}"
                    for state in row.channels
                    if state.event
                )
                or ABSENT,
                row.changed,
            )
            for row in rows
        ],
    )
