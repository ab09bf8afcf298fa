"""`registry promote`."""

import os
import sys
from pathlib import Path

import click

from infinity_v3.artifacts.errors import GateFailedError, UsageError
from infinity_v3.artifacts.names import NAME_RULE, is_name
from infinity_v3.artifacts.registry.reference import Reference, parse_reference
from infinity_v3.artifacts.user_cache import user_cache
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.exits import VerdictError
from infinity_v3.compiler.gates.promote import PromoteOrder, promote
from infinity_v3.compiler.gates.table import (
    headline,
    to_document,
    to_markdown,
    to_text,
)
from infinity_v3.compiler.registry.actor import actor_of
from infinity_v3.compiler.registry.keys import sign_key_option, signer_of, trusted_keys_option
from infinity_v3.compiler.registry.output import print_result, progress_of
from infinity_v3.compiler.registry.place import RegistryPlace, registry_write_options


@click.command("promote")
@click.argument("name")
@click.option("--from", "source", metavar="CHANNEL", help="Promote what this channel points to.")
@click.option("--version", metavar="V", help="Promote this version.")
@click.option("--id", "identity", metavar="ID", help="Promote the newest version of sha256:<hex>.")
@click.option("--to", "channel", metavar="CHANNEL", required=True, help="The channel to move.")
@click.option(
    "--dry-run",
    "is_dry_run",
    is_flag=True,
    help="Ask every gate and print the table, but move nothing; 4 where a gate fails.",
)
@click.option(
    "--no-gates",
    "is_ungated",
    is_flag=True,
    help="Ask no gate, also where the channel has none; the log records that none was asked.",
)
@sign_key_option("Sign the promotion with this Ed25519 key, whose id is recorded as its actor.")
@trusted_keys_option(
    "Trust signatures by this key, where the policy says `require-signature = true` and names none."
)
@click.option(
    "--artifact-cache",
    "cache",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Where artifacts that have to be run are pulled to. [default: the user's cache]",
)
@registry_write_options
@click.option("--markdown", "is_markdown", is_flag=True, help="Print the table as Markdown.")
@json_option
def promote_command(  # noqa: PLR0913  # one per option
    place: RegistryPlace,
    name: str,
    source: str | None,
    version: str | None,
    identity: str | None,
    channel: str,
    is_dry_run: bool,
    is_ungated: bool,
    sign_key: Path | None,
    keys: tuple[Path, ...],
    cache: Path | None,
    is_markdown: bool,
    is_json: bool,
) -> None:
    """Move a channel of NAME to a version, if every gate of the channel's policy passes.

    Prints what each gate found. A gate that fails changes nothing and ends the command with 4.
    """
    if is_markdown and is_json:
        raise UsageError("expected --markdown or --json, found both; give one of them")
    signer = signer_of(sign_key)
    order = PromoteOrder(
        source=_candidate(name, source, version, identity),
        channel=_name(channel, "--to"),
        actor=actor_of(signer),
        signer=signer,
        key_files=keys,
        cache=cache or default_cache(),
        is_dry_run=is_dry_run,
        is_ungated=is_ungated,
    )
    progress = progress_of(is_json=is_json)
    report = promote(place.open(), order, progress)
    if progress.times():
        progress.finish()
    text = to_markdown(report) if is_markdown else to_text(report, is_colored=_is_colored())
    print_result(to_document(report), text, is_json=is_json)
    if report.failed:
        raise VerdictError(GateFailedError(f"{headline(report)}; nothing was changed"))


def default_cache() -> Path:
    """The user's cache.

    Raises:
        UsageError: the user has none.
    """
    cache = user_cache(os.environ)
    if cache is None:
        raise UsageError(
            "expected a home directory to keep pulled artifacts in, found none; give "
            "--artifact-cache DIR"
        )
    return cache


def _candidate(
    name: str, source: str | None, version: str | None, identity: str | None
) -> Reference:
    given = [value for value in (source, version, identity) if value is not None]
    if len(given) != 1:
        raise UsageError(
            f"expected one of --from CHANNEL, --version V and --id ID, found {len(given)}; say "
            f"which version of {name} is to be promoted"
        )
    _name(name, "NAME")
    if identity is not None:
        return parse_reference(f"{name}@{identity}")
    if source is not None:
        return Reference(name=name, channel=_name(source, "--from"))
    return Reference(name=name, version=_name(given[0], "--version"))


def _name(value: str, where: str) -> str:
    if not is_name(value):
        raise UsageError(f"{where}: expected a name, {NAME_RULE}; found {value!a}")
    return value


def _is_colored() -> bool:
    # The command's own stdout is collected until it has ended; this is the program's.
    stream = sys.__stdout__
    is_terminal = stream is not None and stream.isatty()
    return is_terminal and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
