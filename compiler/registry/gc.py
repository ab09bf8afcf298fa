"""`registry gc`."""

import re
from dataclasses import asdict

import click

from infinity_v3.artifacts.registry.gc import GcReport
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.inspection import shown_bytes
from infinity_v3.compiler.registry.output import counted, print_result, table
from infinity_v3.compiler.registry.place import RegistryPlace, registry_write_options

_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)([smhd])")


def _seconds(_ctx: click.Context, _option: click.Parameter, value: str) -> float:
    found = _DURATION.fullmatch(value)
    if found is None:
        raise click.BadParameter(
            f"expected a duration such as 90s, 30m, 24h or 7d, found {value!a}"
        )
    return float(found[1]) * _UNITS_S[found[2]]


@click.command()
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Show what would be removed.")
@click.option(
    "--grace",
    "grace_s",
    callback=_seconds,
    default="24h",
    show_default=True,
    metavar="DURATION",
    help="Keep files written less long ago: a push may be about to need them.",
)
@registry_write_options
@json_option
def gc(place: RegistryPlace, is_dry_run: bool, grace_s: float, is_json: bool) -> None:
    """Remove blobs, manifests and records that no version and no log needs any more."""
    registry = place.open()
    report = registry.collect_garbage(grace_s=grace_s, is_dry_run=is_dry_run)
    document = {"registry": registry.location, **asdict(report), "num_bytes": report.num_bytes}
    print_result(document, _text(report), is_json=is_json)


def _text(report: GcReport) -> str:
    rows = [(removal.path, shown_bytes(removal.num_bytes)) for removal in report.removed]
    verb = "would be removed" if report.is_dry_run else "removed"
    young = f", {len(report.young)} younger than the grace kept" if report.young else ""
    return table(("file", "bytes"), rows) + (
        f"{counted(len(rows), 'file')} {verb} ({shown_bytes(report.num_bytes)}){young}\n"
    )
