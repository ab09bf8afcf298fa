"""What is known of an artifact without its files: manifest and build.json. Reads no blob of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.store import open_artifact
from infinity_v3.compiler.inspection import read_records
from infinity_v3.compiler.registry.output import short_id
from infinity_v3.compiler.registry.place import RegistryPlace
from infinity_v3.compiler.registry.target import find_target


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactView:
    """An artifact in a registry or in a directory.

    Attributes:
        label: how the user named it, and its short id.
        build: content of build.json; empty where it has none.
    """

    label: str
    id: str
    manifest: Manifest
    build: Mapping[str, object]


def view_of(text: str, place: RegistryPlace) -> ArtifactView:
    """Read what is known of a directory or a reference.

    Raises:
        UsageError: it is neither.
        RefusedError: it is not whole.
    """
    target = find_target(text)
    if isinstance(target, Path):
        return _of_directory(target, text)
    return _of_reference(place.open(), target)


def view_of_resolved(registry: Registry, resolved: Resolved, label: str) -> ArtifactView:
    """Read manifest and build.json of a version."""
    build = resolved.record.build
    document: object = {} if build is None else _object(registry.document(build), build)
    return ArtifactView(
        label=f"{label} ({short_id(resolved.id)})",
        id=resolved.id,
        manifest=registry.manifest(resolved.id),
        build=document if isinstance(document, dict) else {},
    )


def parity_figures(view: ArtifactView, target: str) -> Mapping[str, object]:
    """The figures behind a target's verdict, {} where build.json has none."""
    parity = view.build.get("parity")
    figures = parity.get(target) if isinstance(parity, dict) else None
    return figures if isinstance(figures, dict) else {}


def _of_directory(path: Path, text: str) -> ArtifactView:
    artifact = open_artifact(path, allow_shared=True)
    return ArtifactView(
        label=f"{text} ({short_id(artifact.artifact_id)})",
        id=artifact.artifact_id,
        manifest=artifact.manifest,
        build=read_records(artifact),
    )


def _of_reference(registry: Registry, reference: Reference) -> ArtifactView:
    resolved = registry.resolve(reference)
    return view_of_resolved(registry, resolved, f"{resolved.name}=={resolved.version}")


def _object(data: bytes, sha256: str) -> object:
    try:
        return json.loads(data)
    except ValueError as error:
        raise RefusedError(f"blob {sha256}: expected build.json as JSON: {error}") from error
