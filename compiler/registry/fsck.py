"""`registry fsck`."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.findings import Finding
from infinity_v3.artifacts.registry.fsck import FsckOrder, FsckReport
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.exits import VerdictError
from infinity_v3.compiler.inspection import shown_bytes
from infinity_v3.compiler.registry.keys import trusted_keys_option, verifier_of
from infinity_v3.compiler.registry.output import counted, print_result, progress_of
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options


@click.command()
@click.option(
    "--sizes-only",
    is_flag=True,
    help="Compare sizes and compute no digests: fast in an object store, and blind to changed "
    "bytes.",
)
@trusted_keys_option("Signatures of this key must fit as well. May be given more than once.")
@registry_options
@json_option
def fsck(place: RegistryPlace, sizes_only: bool, keys: tuple[Path, ...], is_json: bool) -> None:
    """Check the whole registry: logs, versions, channels, signatures, manifests and blobs.

    Damage is listed by file and ends with exit code 3. What a killed writer left unfinished is
    noted and no damage.
    """
    verifier = verifier_of(keys)
    registry = place.open()
    progress = progress_of(is_json=is_json)
    with progress.stage("check") as stage:
        order = FsckOrder(verifier=verifier, reads_blobs=not sizes_only, advance=stage.advance)
        report = registry.fsck(order)
    progress.finish()
    document = {"registry": registry.location, "is_whole": not report.damage, **asdict(report)}
    print_result(document, _text(report), is_json=is_json)
    if report.damage:
        raise VerdictError(_damaged(registry.location, report.damage))


def _damaged(location: str, damage: Sequence[Finding]) -> RefusedError:
    first = damage[0]
    more = f", and {len(damage) - 1} more" if len(damage) > 1 else ""
    return RefusedError(f"{location}: damaged: {first.path}: {first.problem}{more}")


def _text(report: FsckReport) -> str:
    lines = [f"damaged  {finding.path}: {finding.problem}" for finding in report.damage]
    lines.extend(f"note     {finding.path}: {finding.problem}" for finding in report.notes)
    counts = (
        counted(report.num_names, "name"),
        counted(report.num_versions, "version"),
        counted(report.num_channels, "channel"),
        counted(report.num_events, "event"),
        f"{counted(report.num_blobs, 'blob')} ({shown_bytes(report.num_bytes)})",
    )
    verdict = f"{len(report.damage)} damaged" if report.damage else "whole"
    lines.append(f"{', '.join(counts)}: {verdict}")
    return "\n".join(lines) + "\n"
