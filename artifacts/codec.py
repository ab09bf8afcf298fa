"""Manifest <-> the bytes of artifact.json, strict both ways. Knows nothing of directories."""

import hashlib

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.manifest import FORMAT, FORMAT_VERSION, Manifest
from infinity_v3.artifacts.rules import check_manifest
from infinity_v3.artifacts.typed_json import (
    JsonObject,
    Location,
    canonical_bytes,
    check_canonical,
    check_object,
    from_json,
    parse,
    show,
    to_json,
)


def encode_manifest(manifest: Manifest) -> bytes:
    """Serialise a manifest to its canonical bytes.

    Raises:
        RefusedError: a reader would refuse the manifest; the message names the key.
    """
    data = canonical_bytes(to_json(manifest), Location(MANIFEST_FILE))
    decode_manifest(data)
    return data


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest; everything the format does not say is refused by name.

    Raises:
        RefusedError: names the key at fault, e.g. `artifact.json: targets[1].entry: ...`.
    """
    at = Location(MANIFEST_FILE)
    document = check_object(parse(data, at), at)
    _check_format(document, at)
    manifest = from_json(document, Manifest, at)
    check_manifest(manifest, at)
    check_canonical(data, document, at)
    return manifest


def artifact_id(data: bytes) -> str:
    """Return `sha256:<64 hex>` of the bytes of artifact.json."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _check_format(document: JsonObject, at: Location) -> None:
    found_format = document.get("format", FORMAT)
    if found_format != FORMAT:
        raise at.key("format").refuse(f"expected '{FORMAT}', found {show(found_format)}")
    version = document.get("format_version", FORMAT_VERSION)
    if type(version) is int and version != FORMAT_VERSION:
        raise _wrong_version(document, version, at.key("format_version"))


def _wrong_version(document: JsonObject, version: int, at: Location) -> RefusedError:
    provenance = document.get("provenance")
    release = provenance.get("infinity_v3") if isinstance(provenance, JsonObject) else None
    reader = (
        f"infinity_v3 {show(release)}" if isinstance(release, str) else "the infinity_v3 release"
    )
    older = ", or `infinity-compile upgrade OLD NEW`" if version < FORMAT_VERSION else ""
    return at.refuse(
        f"expected {FORMAT_VERSION}, found {show(version)}; this release reads format "
        f"{FORMAT_VERSION} only: use {reader} that wrote it{older}, or compile the checkpoint again"
    )
