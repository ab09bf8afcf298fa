"""An artifact as an OCI image layout (image-spec 1.1): names, media types and documents.

The config is our artifact.json, each file is a layer titled by its path, each signature is a
manifest of its own whose subject is the artifact. Does no I/O.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from infinity_v3.artifacts.names import is_sha256
from infinity_v3.artifacts.typed_json import (
    JsonObject,
    Location,
    canonical_bytes,
    check_object,
    parse,
    show,
)

LAYOUT_FILE = "oci-layout"
INDEX_FILE = "index.json"
BLOBS = "blobs/sha256"
LAYOUT_VERSION = "1.0.0"

INDEX_TYPE = "application/vnd.oci.image.index.v1+json"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
EMPTY_TYPE = "application/vnd.oci.empty.v1+json"
ARTIFACT_TYPE = "application/vnd.infinity.artifact.v1"
CONFIG_TYPE = "application/vnd.infinity.artifact.manifest.v1+json"
FILE_TYPE = "application/octet-stream"
SIGNATURE_TYPE = "application/vnd.infinity.signature.v1"

TITLE = "org.opencontainers.image.title"
VERSION = "org.opencontainers.image.version"
REF_NAME = "org.opencontainers.image.ref.name"

EMPTY_CONFIG = b"{}"
MAX_DOCUMENT_BYTES = 4 << 20
"""What registries accept of a manifest, and more than an index of ours ever has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Descriptor:
    """Points to a blob; `artifact_type` is of the manifests that an index lists."""

    media_type: str
    sha256: str
    num_bytes: int
    annotations: Mapping[str, str] = field(default_factory=dict)
    artifact_type: str | None = None

    @staticmethod
    def of(
        data: bytes, media_type: str, annotations: Mapping[str, str] | None = None
    ) -> "Descriptor":
        """Describe bytes at hand."""
        return Descriptor(
            media_type=media_type,
            sha256=hashlib.sha256(data).hexdigest(),
            num_bytes=len(data),
            annotations=annotations or {},
        )

    def to_json(self) -> dict[str, object]:
        """The descriptor as image-spec writes it."""
        optional = {"annotations": dict(self.annotations), "artifactType": self.artifact_type}
        return {
            "mediaType": self.media_type,
            "digest": f"sha256:{self.sha256}",
            "size": self.num_bytes,
            **{key: value for key, value in optional.items() if value},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class OciManifest:
    """One image manifest; `subject` is what a signature belongs to."""

    artifact_type: str
    config: Descriptor
    layers: tuple[Descriptor, ...]
    annotations: Mapping[str, str] = field(default_factory=dict)
    subject: Descriptor | None = None

    def to_bytes(self) -> bytes:
        """Serialise; equal manifests have equal bytes."""
        document: dict[str, object] = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "artifactType": self.artifact_type,
            "config": self.config.to_json(),
            "layers": [layer.to_json() for layer in self.layers],
        }
        if self.annotations:
            document["annotations"] = dict(self.annotations)
        if self.subject is not None:
            document["subject"] = self.subject.to_json()
        return canonical_bytes(document, Location("manifest"))


def layout_bytes() -> bytes:
    """The content of the file oci-layout."""
    return canonical_bytes({"imageLayoutVersion": LAYOUT_VERSION}, Location(LAYOUT_FILE))


def index_bytes(manifests: tuple[Descriptor, ...]) -> bytes:
    """The content of index.json."""
    document = {
        "schemaVersion": 2,
        "mediaType": INDEX_TYPE,
        "manifests": [descriptor.to_json() for descriptor in manifests],
    }
    return canonical_bytes(document, Location(INDEX_FILE))


def check_layout(data: bytes, at: Location) -> None:
    """Refuse a file oci-layout of another version.

    Raises:
        RefusedError: names the key at fault, as all functions below do.
    """
    found = check_object(parse(data, at), at).get("imageLayoutVersion")
    if found != LAYOUT_VERSION:
        raise at.key("imageLayoutVersion").refuse(
            f"expected '{LAYOUT_VERSION}', found {show(found)}"
        )


def read_index(data: bytes, at: Location) -> tuple[Descriptor, ...]:
    """Read the descriptors of index.json; keys that other tools add are passed over."""
    document = check_object(parse(data, at), at)
    _check_value(document, "schemaVersion", 2, at)
    return tuple(_descriptors(document, "manifests", at))


def read_oci_manifest(data: bytes, at: Location) -> OciManifest:
    """Read an image manifest; keys that other tools add are passed over."""
    document = check_object(parse(data, at), at)
    _check_value(document, "schemaVersion", 2, at)
    _check_value(document, "mediaType", MANIFEST_TYPE, at)
    subject = document.get("subject")
    return OciManifest(
        artifact_type=_text(document, "artifactType", at),
        config=_descriptor(document.get("config"), at.key("config")),
        layers=tuple(_descriptors(document, "layers", at)),
        annotations=_annotations(document, at),
        subject=None if subject is None else _descriptor(subject, at.key("subject")),
    )


def _descriptors(document: JsonObject, key: str, at: Location) -> Iterator[Descriptor]:
    found = document.get(key)
    if not isinstance(found, list):
        raise at.key(key).refuse(f"expected an array, found {show(found)}")
    for index, item in enumerate(found):
        yield _descriptor(item, at.key(key).item(index))


def _descriptor(value: object, at: Location) -> Descriptor:
    found = check_object(value, at)
    algorithm, _, digits = _text(found, "digest", at).partition(":")
    if algorithm != "sha256" or not is_sha256(digits):
        raise at.key("digest").refuse("expected sha256:<64 hex digits>")
    size = found.get("size")
    if type(size) is not int or size < 0:
        raise at.key("size").refuse(f"expected a number of bytes, found {show(size)}")
    artifact_type = found.get("artifactType")
    return Descriptor(
        media_type=_text(found, "mediaType", at),
        sha256=digits,
        num_bytes=size,
        annotations=_annotations(found, at),
        artifact_type=artifact_type if isinstance(artifact_type, str) else None,
    )


def _annotations(document: JsonObject, at: Location) -> dict[str, str]:
    found = document.get("annotations")
    if found is None:
        return {}
    annotations = check_object(found, at.key("annotations"))
    return {key: _text(annotations, key, at.key("annotations")) for key in annotations}


def _text(document: JsonObject, key: str, at: Location) -> str:
    found = document.get(key)
    if not isinstance(found, str):
        raise at.key(key).refuse(f"expected a string, found {show(found)}")
    return found


def _check_value(document: JsonObject, key: str, expected: object, at: Location) -> None:
    found = document.get(key)
    if found != expected:
        raise at.key(key).refuse(f"expected {show(expected)}, found {show(found)}")
