"""`registry push`."""

from dataclasses import asdict
from pathlib import Path

import click

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.push import PushReport, push_bytes
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.inspection import shown_bytes
from infinity_v3.compiler.registry.actor import actor_of
from infinity_v3.compiler.registry.keys import sign_key_option, signer_of
from infinity_v3.compiler.registry.output import counted, print_result, progress_of
from infinity_v3.compiler.registry.place import RegistryPlace, registry_write_options


@click.command()
@click.argument("artifact", type=click.Path(path_type=Path))
@click.option("--version", required=True, metavar="V", help="What this build of it is called.")
@sign_key_option("Sign the version with this Ed25519 key.")
@registry_write_options
@json_option
def push(
    place: RegistryPlace, artifact: Path, version: str, sign_key: Path | None, is_json: bool
) -> None:
    """Verify ARTIFACT and put it into the registry, under its own name and version V.

    Only what is missing there is sent. A version never changes: the same artifact again is
    accepted and changes nothing, another one is refused.
    """
    if not artifact.exists():
        raise UsageError(f"{artifact}: no such artifact; give the directory of one")
    signer = signer_of(sign_key)
    registry = place.open()
    opened = open_artifact(artifact, allow_shared=True)
    progress = progress_of(is_json=is_json)
    with progress.stage(f"push {opened.manifest.name}", push_bytes(opened)) as stage:
        report = registry.push(
            opened, version, actor=actor_of(signer), signer=signer, advance=stage.advance
        )
    for path in report.healed:
        progress.note(f"warning: {path} was damaged and has been replaced")
    progress.finish()
    document = {"registry": registry.location, **asdict(report)}
    print_result(document, _text(report), is_json=is_json)


def _text(report: PushReport) -> str:
    sent = f"{counted(report.sent_files, 'file')} sent ({shown_bytes(report.sent_bytes)})"
    reused = f"{report.reused_files} were there ({shown_bytes(report.reused_bytes)})"
    known = "" if report.is_new else f"\n  this version was there already; {_changes(report)}"
    return f"{report.name}=={report.version}\n  {report.id}\n  {sent}, {reused}{known}\n"


def _changes(report: PushReport) -> str:
    """What a push of a known version did."""
    num_mended = len(report.healed) + len(report.restored)
    mended = f"{counted(num_mended, 'lost or damaged file')} mended" if num_mended else ""
    signed = "a signature added" if report.is_signed else ""
    return ", ".join(filter(None, (mended, signed))) or "nothing changed"
