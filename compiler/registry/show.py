"""`registry show`."""

from collections.abc import Callable, Iterable

import click

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.reference import Reference, parse_reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.artifacts.typed_json import to_json
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.inspection import shown_bytes
from infinity_v3.compiler.registry.output import facts, print_result, short_id, table
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options
from infinity_v3.compiler.registry.view import ArtifactView, parity_figures, view_of_resolved


@click.command()
@click.argument("reference", metavar="NAME|REF")
@registry_options
@json_option
def show(place: RegistryPlace, reference: str, is_json: bool) -> None:
    """Show the versions and channels of NAME, or what one version of it is.

    REF is name:channel, name==version or name@sha256:<64 hex digits>.
    """
    parsed = parse_reference(reference)
    registry = place.open()
    if parsed == Reference(name=parsed.name):
        document, text = _name(registry, parsed.name)
    else:
        document, text = _version(registry, registry.resolve(parsed))
    print_result({"registry": registry.location, **document}, text, is_json=is_json)


def _name(registry: Registry, name: str) -> tuple[dict[str, object], str]:
    if registry.last_event(name) is None:
        hint = nearest(name, registry.names())
        raise RefusedError(f"{name}: no such name in {registry.location}{hint}")
    channels = [state for state in registry.channels(name) if state.event is not None]
    versions = [
        {
            "version": version,
            "id": record.id,
            "pushed": registry.event(name, record.event).time,
            "actor": registry.event(name, record.event).actor,
            "signed_by": sorted(registry.signatures(name, version)),
            "channels": [s.channel for s in channels if s.event and s.event.version == version],
        }
        for version, record in registry.versions(name).items()
    ]
    document: dict[str, object] = {
        "name": name,
        "versions": versions,
        "channels": {s.channel: to_json(s.event) for s in channels},
    }
    rows = [
        (
            str(row["version"]),
            short_id(str(row["id"])),
            str(row["pushed"]),
            str(row["actor"]),
            _joined(row["signed_by"]),
            _joined(row["channels"]),
        )
        for row in reversed(versions)
    ]
    header = ("version", "id", "pushed", "by", "signed by", "channels")
    return document, table(header, rows) or f"{name}: every version is retired\n"


def _version(registry: Registry, resolved: Resolved) -> tuple[dict[str, object], str]:
    view = view_of_resolved(registry, resolved, resolved.version)
    pushed = registry.event(resolved.name, resolved.record.event)
    signed_by = sorted(registry.signatures(resolved.name, resolved.version))
    document: dict[str, object] = {
        "name": resolved.name,
        "version": resolved.version,
        "id": resolved.id,
        "pushed": pushed.time,
        "actor": pushed.actor,
        "signed_by": signed_by,
        "moved": None if resolved.event is None else to_json(resolved.event),
        "manifest": to_json(view.manifest),
        "build": dict(view.build),
    }
    return document, _version_text(
        resolved, view, pushed_line(pushed.time, pushed.actor), signed_by
    )


def pushed_line(time: str, actor: str) -> str:
    """When and by whom."""
    return f"{time} by {actor}"


def _version_text(resolved: Resolved, view: ArtifactView, pushed: str, signed_by: list[str]) -> str:
    manifest = view.manifest
    rows = [
        ("name", resolved.name),
        ("version", resolved.version),
        ("id", resolved.id),
        ("kind", manifest.kind.value),
        ("pushed", pushed),
        ("signed by", _joined(signed_by)),
    ]
    if resolved.event is not None:
        moved = pushed_line(resolved.event.time, resolved.event.actor)
        rows.append((f"in {resolved.channel}", f"since {moved}, event {resolved.event.seq}"))
    total = sum(entry.num_bytes for entry in manifest.files)
    rows.append(("files", f"{len(manifest.files)} ({shown_bytes(total)})"))
    labels = view.build.get("labels")
    if isinstance(labels, dict) and labels:
        rows.append(("labels", ", ".join(f"{key}={value}" for key, value in labels.items())))
    targets = [
        (
            target.name,
            target.precision.value,
            "passed" if target.parity.passed else "failed",
            _worst(view, target.name, "min_cosine", min),
            _worst(view, target.name, "max_abs", max),
        )
        for target in manifest.targets
    ]
    header = ("target", "precision", "parity", "least cosine", "largest difference")
    return facts(rows) + "\n" + table(header, targets)


def _worst(
    view: ArtifactView, target: str, figure: str, worst: Callable[[Iterable[float]], float]
) -> str:
    """The worst of one figure over all outputs of a target, against the reference model."""
    found = [
        float(value)
        for name, value in parity_figures(view, target).items()
        if name.rpartition(".")[2] == figure and isinstance(value, (int, float))
    ]
    return f"{worst(found):.6g}" if found else "-"


def _joined(words: object) -> str:
    return ", ".join(str(word) for word in words) if isinstance(words, list) and words else "-"
