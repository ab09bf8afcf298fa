"""`registry log`."""

import click

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.names import NAME_RULE, is_name
from infinity_v3.artifacts.registry.records import Event
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.artifacts.typed_json import to_json
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.output import print_result, short_id, table
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options


@click.command()
@click.argument("name")
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Show the newest N events only."
)
@registry_options
@json_option
def log(place: RegistryPlace, name: str, limit: int | None, is_json: bool) -> None:
    """Show what happened to NAME, the newest event first, its chain checked."""
    if not is_name(name):
        raise UsageError(f"{name}: expected a name, {NAME_RULE}")
    registry = place.open()
    events = list(registry.events(name))
    if not events:
        known = registry.names()
        raise RefusedError(f"{name}: no such name in {registry.location}{nearest(name, known)}")
    shown = events[::-1][:limit]
    document = {"registry": registry.location, "events": [to_json(event) for event in shown]}
    print_result(document, _text(shown), is_json=is_json)


def _text(events: list[Event]) -> str:
    return table(
        ("event", "time", "what", "channel", "version", "id", "instead of", "actor"),
        [
            (
                str(event.seq),
                event.time,
                event.kind.value + (" (no gates)" if event.is_ungated else ""),
                event.channel or "-",
                event.version,
                short_id(event.id),
                event.replaced_version or "-",
                event.actor,
            )
            for event in events
        ],
    )
