"""`registry export-oci` and `registry import-oci`."""

import tempfile
from pathlib import Path

import click

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.oci_export import export_oci
from infinity_v3.artifacts.registry.oci_import import import_oci
from infinity_v3.artifacts.registry.pull import pull_bytes
from infinity_v3.artifacts.registry.push import push_bytes
from infinity_v3.artifacts.registry.reference import parse_reference
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.actor import actor_of
from infinity_v3.compiler.registry.output import print_result, progress_of
from infinity_v3.compiler.registry.place import (
    RegistryPlace,
    registry_options,
    registry_write_options,
)


@click.command(name="export-oci")
@click.argument("reference", metavar="REF")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@registry_options
@json_option
def export_command(place: RegistryPlace, reference: str, directory: Path, is_json: bool) -> None:
    """Write REF and its signatures to DIR, a new OCI image layout.

    Tools such as oras and skopeo copy it to and from container registries; `import-oci` reads it
    back to the same artifact id.
    """
    registry = place.open()
    resolved = registry.resolve(parse_reference(reference))
    progress = progress_of(is_json=is_json)
    total = pull_bytes(registry.manifest(resolved.id))
    shown = f"{resolved.name}=={resolved.version}"
    with progress.stage(f"export {shown}", total) as stage:
        digest = export_oci(registry.storage, resolved, directory, advance=stage.advance)
    progress.finish()
    document = {
        "registry": registry.location,
        "name": resolved.name,
        "version": resolved.version,
        "id": resolved.id,
        "path": str(directory),
        "image": digest,
    }
    print_result(
        document, f"{directory}\n  {shown}\n  {resolved.id}\n  image {digest}\n", is_json=is_json
    )


@click.command(name="import-oci")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--version", metavar="V", help="What this build is called; without it as it was exported."
)
@registry_write_options
@json_option
def import_command(
    place: RegistryPlace, directory: Path, version: str | None, is_json: bool
) -> None:
    """Push the artifact of DIR, an OCI image layout that `export-oci` wrote.

    Its signatures come along where name and version stay what was signed.
    """
    if not directory.is_dir():
        raise UsageError(f"{directory}: no such directory; give an OCI image layout")
    registry = place.open()
    progress = progress_of(is_json=is_json)
    with tempfile.TemporaryDirectory(prefix="infinity-oci-") as scratch:
        found = import_oci(directory, Path(scratch) / "artifact")
        name = found.artifact.manifest.name
        kept = found.version if version is None else version
        with progress.stage(f"push {name}=={kept}", push_bytes(found.artifact)) as stage:
            report = registry.push(
                found.artifact, kept, actor=actor_of(None), advance=stage.advance
            )
    progress.finish()
    signatures = found.signatures if kept == found.version else {}
    for key_id, signature in signatures.items():
        registry.storage.replace(paths.signature(name, kept, key_id), signature)
    document = {
        "registry": registry.location,
        "name": name,
        "version": kept,
        "id": report.id,
        "is_new": report.is_new,
        "signatures": sorted(signatures),
        "dropped_signatures": sorted(found.signatures.keys() - signatures.keys()),
    }
    signed = f"  signed by {', '.join(sorted(signatures))}\n" if signatures else ""
    print_result(document, f"{name}=={kept}\n  {report.id}\n{signed}", is_json=is_json)
