"""`registry retire`."""

import click

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.reference import parse_reference
from infinity_v3.artifacts.typed_json import to_json
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.actor import actor_of
from infinity_v3.compiler.registry.output import print_result
from infinity_v3.compiler.registry.place import RegistryPlace, registry_write_options


@click.command()
@click.argument("reference", metavar="NAME==V")
@registry_write_options
@json_option
def retire(place: RegistryPlace, reference: str, is_json: bool) -> None:
    """Take a version back: it is found no more, and `gc` frees what only it needs.

    Refused while a channel points to it. Its number is not used again.
    """
    parsed = parse_reference(reference)
    if parsed.version is None:
        raise UsageError(f"{reference}: expected name==version, found {reference}")
    registry = place.open()
    event = registry.retire(parsed.name, parsed.version, actor=actor_of(None))
    text = f"{reference}\n  {event.id}\n  retired, event {event.seq}; `registry gc` frees space\n"
    document = {"registry": registry.location, "event": to_json(event)}
    print_result(document, text, is_json=is_json)
