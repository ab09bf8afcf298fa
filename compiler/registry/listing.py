"""`registry list`."""

from collections.abc import Mapping
from dataclasses import dataclass

import click

from infinity_v3.artifacts.registry.channels import ChannelState
from infinity_v3.artifacts.registry.records import Event, VersionRecord
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.compiler.command_group import json_option
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
    """List the names in the registry, their newest versions and their channels."""
    registry = place.open()
    found = [(name, registry.last_event(name)) for name in registry.names()]
    # A first push that was killed leaves an empty folder.
    rows = [_row(registry, name, last) for name, last in found if last is not None]
    document = {"registry": registry.location, "names": [_to_json(row) for row in rows]}
    print_result(document, _text(rows) or f"{registry.location}: empty\n", is_json=is_json)


def _row(registry: Registry, name: str, last: Event) -> _Row:
    return _Row(
        name=name,
        versions=registry.versions(name),
        channels=registry.channels(name),
        changed=last.time,
    )


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
