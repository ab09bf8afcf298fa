"""`registry pull`."""

import os
from pathlib import Path

import click

from infinity_v3.artifacts.registry.pull import pull_bytes
from infinity_v3.artifacts.registry.reference import parse_reference
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.artifacts.user_cache import user_cache
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.keys import trusted_keys_option, verifier_of
from infinity_v3.compiler.registry.output import print_result, progress_of
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options


@click.command()
@click.argument("reference", metavar="REF")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="The directory to write; must not exist.",
)
@trusted_keys_option(
    "Refuse what was not signed with this Ed25519 key, or one of several; of a channel also its "
    "last move, and one older than was seen before."
)
@registry_options
@json_option
def pull(
    place: RegistryPlace, reference: str, out: Path, keys: tuple[Path, ...], is_json: bool
) -> None:
    """Write the artifact of REF to a directory, every file of it verified.

    REF is name, name:channel, name==version or name@sha256:<64 hex digits>. Signatures, where the
    version has any, go to DIR.sig.
    """
    wanted = parse_reference(reference)
    verifier = verifier_of(keys)
    registry = place.open(verifier=verifier, seen=seen_events() if verifier else None)
    resolved = registry.resolve(wanted)
    progress = progress_of(is_json=is_json)
    total = pull_bytes(registry.manifest(resolved.id))
    with progress.stage(f"pull {_place(resolved)}", total) as stage:
        artifact = registry.pull(resolved, out, advance=stage.advance)
    progress.finish()
    document = {
        "registry": registry.location,
        "name": resolved.name,
        "version": resolved.version,
        "id": resolved.id,
        "path": str(artifact.path),
    }
    text = f"{artifact.path}\n  {_place(resolved)}\n  {resolved.id}\n"
    print_result(document, text, is_json=is_json)


def seen_events() -> SeenEvents | None:
    """The memory of newest events in the user's cache, None where the user has none."""
    cache = user_cache(os.environ)
    return None if cache is None else SeenEvents(cache / "registry")


def _place(resolved: Resolved) -> str:
    return f"{resolved.name}=={resolved.version}"
