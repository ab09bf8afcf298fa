"""Asks a registry which of its versions were built from which inputs. Writes nothing."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.records import VersionRecord
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.signing import Signer, version_message
from infinity_v3.compiler.builds.build_key import key_of_build


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedBuild:
    """A version of a registry with what its build.json says.

    Attributes:
        build: {} where it has none.
        lacks_signature: there is a key to sign with, and no signature of it.
    """

    version: str
    artifact_id: str
    manifest: Manifest
    build: Mapping[str, object]
    lacks_signature: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """What a registry has of one name and build key.

    Attributes:
        same: the version that is asked for, built from the same inputs.
        elsewhere: another version that was built from them.
        is_damaged: the version that is asked for was built from them, but files of it are absent or
            of another size; pushing it again mends it.
    """

    same: PublishedBuild | None = None
    elsewhere: str | None = None
    is_damaged: bool = False


def find_published(
    registry: Registry, name: str, version: str, key: str, signer: Signer | None = None
) -> Published:
    """Look for a version, then for any version with the build key, newest first.

    Raises:
        RefusedError: the version was built from other inputs, or a record cannot be trusted.
        RunFailedError: the registry cannot be read.
    """
    records = registry.versions(name)
    if version in records:
        same = _same(registry, name, version, records[version], key, signer)
        is_whole = _is_whole(registry, same.manifest)
        return Published(same=same) if is_whole else Published(is_damaged=True)
    for other, record in reversed(records.items()):
        if key_of_build(_build_json(registry, record)) == key and _is_whole(
            registry, registry.manifest(record.id)
        ):
            return Published(elsewhere=other)
    return Published()


def _same(
    registry: Registry,
    name: str,
    version: str,
    record: VersionRecord,
    key: str,
    signer: Signer | None,
) -> PublishedBuild:
    build = _build_json(registry, record)
    found = key_of_build(build)
    if found != key:
        inputs = "no build key" if found is None else f"build key {found[:12]}"
        raise RefusedError(
            f"{registry.location} has {name}=={version} with {inputs}, the build "
            f"file makes {key[:12]}; published versions never change: raise the version, or put "
            "{key} into it"
        )
    return PublishedBuild(
        version=version,
        artifact_id=record.id,
        manifest=registry.manifest(record.id),
        build=build,
        lacks_signature=signer is not None
        and not _is_signed(registry, name, version, record.id, signer),
    )


def _is_whole(registry: Registry, manifest: Manifest) -> bool:
    """Ask for the sizes only; digests are what `registry fsck` compares."""
    sizes = {entry.sha256: entry.num_bytes for entry in manifest.files}
    return all(registry.storage.size(paths.blob(sha)) == size for sha, size in sizes.items())


def _is_signed(registry: Registry, name: str, version: str, identity: str, signer: Signer) -> bool:
    """An Ed25519 key signs a message in one way only, so that its signature can be compared."""
    found = registry.signatures(name, version).get(signer.key_id)
    return found == signer.sign(version_message(name, version, identity))


def _build_json(registry: Registry, record: VersionRecord) -> Mapping[str, object]:
    if record.build is None:
        return {}
    try:
        document = json.loads(registry.document(record.build))
    except (ValueError, RecursionError):
        return {}  # nobody's build, then: it says nothing of inputs
    return document if isinstance(document, dict) else {}
