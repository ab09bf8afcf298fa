"""From an OCI image layout to an artifact directory and its signatures, every digest checked.

Accepts what `oci_export` writes, also after other tools have copied it.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.codec import decode_manifest
from infinity_v3.artifacts.digest import open_beneath
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import BUILD_FILE, PROFILE_FILE
from infinity_v3.artifacts.names import is_name
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.registry import oci
from infinity_v3.artifacts.registry.copying import copy_out, rest_of
from infinity_v3.artifacts.registry.event_signature import SIGNATURE_BYTES
from infinity_v3.artifacts.registry.oci import Descriptor, OciManifest
from infinity_v3.artifacts.store import MAX_MANIFEST_BYTES, Artifact
from infinity_v3.artifacts.typed_json import Location
from infinity_v3.artifacts.writer import ArtifactWriter

_DOCUMENTS = (PROFILE_FILE, BUILD_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a layout held.

    Attributes:
        artifact: the directory that was written.
        version: what it was exported as.
        signatures: 64 bytes by key id, for that name, version and id; nobody checked them.
    """

    artifact: Artifact
    version: str
    signatures: dict[str, bytes]


def import_oci(layout: Path, out: Path) -> Imported:
    """Write the artifact of a layout to a path that does not exist.

    Raises:
        UsageError: `out` exists.
        RefusedError: not a layout of one artifact, or a blob differs from its descriptor; nothing
            was written.
        RunFailedError: something cannot be read or written.
    """
    reader = _OciReader(layout)
    subject, image = reader.image()
    manifest = decode_manifest(reader.read(image.config, MAX_MANIFEST_BYTES))
    version = image.annotations.get(oci.VERSION, "")
    if image.annotations.get(oci.TITLE) != manifest.name or not is_name(version):
        raise RefusedError(
            f"{layout}: expected annotations with the name {manifest.name} and a version, found "
            f"{image.annotations.get(oci.TITLE)!a} and {version!a}"
        )
    layers = _titled(layout, image)
    documents = {
        name: reader.read(layers.pop(name), oci.MAX_DOCUMENT_BYTES)
        for name in _DOCUMENTS
        if name in layers
    }
    missing = [entry.path for entry in manifest.files if entry.path not in layers]
    unknown = sorted(layers.keys() - {entry.path for entry in manifest.files})
    if missing or unknown:
        raise RefusedError(
            f"{layout}: expected one layer per file of artifact.json, found "
            + (f"none for {missing[0]}" if missing else f"one for {unknown[0]!a}")
        )
    signatures = dict(reader.signatures(subject))
    with ArtifactWriter(out) as writer:
        for entry in manifest.files:
            reader.copy(layers[entry.path], writer.stage / entry.path)
        # Compares every file with the manifest once more.
        artifact = writer.commit_copy(manifest, documents)
    return Imported(artifact=artifact, version=version, signatures=signatures)


class _OciReader:
    """Blobs of one layout, each compared with its descriptor."""

    def __init__(self, layout: Path) -> None:
        self._layout = layout
        oci.check_layout(self._file(oci.LAYOUT_FILE), self._at(oci.LAYOUT_FILE))
        index = self._file(oci.INDEX_FILE)
        self._manifests = [
            (descriptor, self._manifest(descriptor))
            for descriptor in oci.read_index(index, self._at(oci.INDEX_FILE))
        ]

    def image(self) -> tuple[Descriptor, OciManifest]:
        """The only artifact of the layout."""
        found = [item for item in self._manifests if item[1].artifact_type == oci.ARTIFACT_TYPE]
        if len(found) != 1 or found[0][1].config.media_type != oci.CONFIG_TYPE:
            raise RefusedError(
                f"{self._layout}: expected one manifest of type {oci.ARTIFACT_TYPE}, found "
                f"{len(found)}; `infinity-compile registry export-oci` writes such layouts"
            )
        return found[0]

    def signatures(self, subject: Descriptor) -> Iterator[tuple[str, bytes]]:
        """Key ids and signatures of the artifact."""
        for descriptor, manifest in self._manifests:
            if manifest.artifact_type != oci.SIGNATURE_TYPE or manifest.subject is None:
                continue
            if manifest.subject.sha256 != subject.sha256:
                continue
            self.read(manifest.config, oci.MAX_DOCUMENT_BYTES)
            for layer in manifest.layers:
                key_id = layer.annotations.get(oci.TITLE, "")
                data = self.read(layer, SIGNATURE_BYTES)
                if not is_name(key_id) or len(data) != SIGNATURE_BYTES:
                    raise RefusedError(
                        f"{self._layout}: {oci.BLOBS}/{descriptor.sha256}: expected signatures of "
                        f"{SIGNATURE_BYTES} bytes titled by their key id, found {key_id!a}"
                    )
                yield key_id, data

    def read(self, descriptor: Descriptor, max_bytes: int) -> bytes:
        """Read a small blob."""
        path = f"{oci.BLOBS}/{descriptor.sha256}"
        data = self._file(path, max_bytes)
        self._check(path, descriptor, len(data), hashlib.sha256(data).hexdigest())
        return data

    def copy(self, descriptor: Descriptor, target: Path) -> None:
        """Copy a blob of any size into a new file."""
        path = f"{oci.BLOBS}/{descriptor.sha256}"
        with os_errors_as_run_failed("write", target):
            target.parent.mkdir(parents=True, exist_ok=True)
        descriptor_number = self._open(path)
        try:
            with os_errors_as_run_failed("read", self._layout / path):
                digest = copy_out(rest_of(descriptor_number), target)
                num_bytes = os.fstat(descriptor_number).st_size
        finally:
            os.close(descriptor_number)
        self._check(path, descriptor, num_bytes, digest)

    def _manifest(self, descriptor: Descriptor) -> OciManifest:
        data = self.read(descriptor, oci.MAX_DOCUMENT_BYTES)
        return oci.read_oci_manifest(data, self._at(f"{oci.BLOBS}/{descriptor.sha256}"))

    def _check(self, path: str, descriptor: Descriptor, num_bytes: int, sha256: str) -> None:
        if (num_bytes, sha256) != (descriptor.num_bytes, descriptor.sha256):
            raise RefusedError(
                f"{self._layout / path}: expected {descriptor.num_bytes} bytes with this sha256, "
                f"found {num_bytes} with {sha256}"
            )

    def _file(self, path: str, max_bytes: int = oci.MAX_DOCUMENT_BYTES) -> bytes:
        number = self._open(path)
        with (
            os_errors_as_run_failed("read", self._layout / path),
            os.fdopen(number, "rb") as file,
        ):
            data = file.read(max_bytes + 1)
        if len(data) > max_bytes:
            raise RefusedError(f"{self._layout / path}: expected at most {max_bytes} bytes")
        return data

    def _open(self, path: str) -> int:
        try:
            return open_beneath(self._layout, path)
        except OSError as error:
            raise RefusedError(
                f"{self._layout / path}: expected this file of an OCI image layout: "
                f"{os.strerror(error.errno or 0).lower()}"
            ) from error

    def _at(self, path: str) -> Location:
        return Location(str(self._layout / path))


def _titled(layout: Path, image: OciManifest) -> dict[str, Descriptor]:
    layers = {layer.annotations.get(oci.TITLE, ""): layer for layer in image.layers}
    if len(layers) != len(image.layers) or "" in layers:
        raise RefusedError(f"{layout}: expected layers with a title of their own each")
    return layers
