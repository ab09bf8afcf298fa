"""From a version in a registry to a new OCI image layout. Knows the layout's rules from `oci`."""

import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from infinity_v3.artifacts.codec import encode_manifest
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.layout import BUILD_FILE, PROFILE_FILE
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.output_lock import partial_path
from infinity_v3.artifacts.publish import (
    existing_output,
    rename_without_overwrite,
    sync_paths,
    sync_tree,
)
from infinity_v3.artifacts.registry import oci, paths
from infinity_v3.artifacts.registry.oci import Descriptor, OciManifest
from infinity_v3.artifacts.registry.pull import Advance
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import CHECK, read_document, read_manifest, shown
from infinity_v3.artifacts.registry.version_signatures import read_signatures
from infinity_v3.artifacts.tree import scan_tree


def export_oci(
    storage: RegistryStorage, resolved: Resolved, out: Path, *, advance: Advance = lambda _: None
) -> str:
    """Write a version and its signatures as an OCI image layout.

    Returns:
        The digest of the image manifest, `sha256:<64 hex digits>`; the same for the same version
        wherever it is exported.

    Raises:
        UsageError: `out` exists.
        RefusedError: the registry is damaged; nothing was written.
        RunFailedError: the registry cannot be read or the disk is full; nothing was written.
    """
    with os_errors_as_run_failed("write", out):
        if os.path.lexists(out):
            raise existing_output(out)
        out.parent.mkdir(parents=True, exist_ok=True)
        stage = partial_path(out, secrets.token_hex(8))
        try:
            (stage / oci.BLOBS).mkdir(parents=True)
            digest = _OciWriter(storage, resolved, stage, advance).write()
            sync_tree(scan_tree(stage))
            rename_without_overwrite(stage, out)
        finally:
            # After the rename this finds nothing.
            shutil.rmtree(stage, ignore_errors=True)
        sync_paths([out.parent])
    return digest


class _OciWriter:
    """Fills one stage."""

    def __init__(
        self, storage: RegistryStorage, resolved: Resolved, stage: Path, advance: Advance
    ) -> None:
        self._storage = storage
        self._resolved = resolved
        self._stage = stage
        self._advance = advance

    def write(self) -> str:
        """Write everything; returns the digest of the image manifest."""
        resolved = self._resolved
        manifest = read_manifest(self._storage, resolved.id)
        names = {oci.TITLE: resolved.name, oci.VERSION: resolved.version}
        image = OciManifest(
            artifact_type=oci.ARTIFACT_TYPE,
            config=self._put(encode_manifest(manifest), oci.CONFIG_TYPE),
            layers=(*self._files(manifest), *self._documents()),
            annotations=names,
        )
        subject = self._put(image.to_bytes(), oci.MANIFEST_TYPE)
        listed = (_listed(subject, oci.ARTIFACT_TYPE, names), *self._signatures(subject))
        (self._stage / oci.INDEX_FILE).write_bytes(oci.index_bytes(listed))
        (self._stage / oci.LAYOUT_FILE).write_bytes(oci.layout_bytes())
        return f"sha256:{subject.sha256}"

    def _files(self, manifest: Manifest) -> Iterator[Descriptor]:
        for entry in manifest.files:
            self._fetch(entry.sha256, entry.path)
            self._advance(entry.num_bytes)
            yield Descriptor(
                media_type=oci.FILE_TYPE,
                sha256=entry.sha256,
                num_bytes=entry.num_bytes,
                annotations={oci.TITLE: entry.path},
            )

    def _documents(self) -> Iterator[Descriptor]:
        record = self._resolved.record
        for name, sha256 in ((PROFILE_FILE, record.profile), (BUILD_FILE, record.build)):
            if sha256 is not None:
                data = read_document(self._storage, sha256)
                yield self._put(data, oci.FILE_TYPE, {oci.TITLE: name})

    def _signatures(self, subject: Descriptor) -> Iterator[Descriptor]:
        found = read_signatures(self._storage, self._resolved.name, self._resolved.version)
        for key_id, signature in sorted(found.items()):
            manifest = OciManifest(
                artifact_type=oci.SIGNATURE_TYPE,
                config=self._put(oci.EMPTY_CONFIG, oci.EMPTY_TYPE),
                layers=(self._put(signature, oci.SIGNATURE_TYPE, {oci.TITLE: key_id}),),
                subject=subject,
            )
            yield _listed(self._put(manifest.to_bytes(), oci.MANIFEST_TYPE), oci.SIGNATURE_TYPE, {})

    def _put(
        self, data: bytes, media_type: str, annotations: dict[str, str] | None = None
    ) -> Descriptor:
        descriptor = Descriptor.of(data, media_type, annotations)
        (self._stage / oci.BLOBS / descriptor.sha256).write_bytes(data)
        return descriptor

    def _fetch(self, sha256: str, path: str) -> None:
        target = self._stage / oci.BLOBS / sha256
        if target.exists():
            return  # Another file of the same content.
        blob = paths.blob(sha256)
        found = self._storage.download(blob, target)
        if found != sha256:
            raise RefusedError(
                f"{shown(self._storage, blob)}: expected {path} of the artifact, found "
                f"{'none' if found is None else 'another content'}; {CHECK}"
            )


def _listed(descriptor: Descriptor, artifact_type: str, names: dict[str, str]) -> Descriptor:
    """A manifest as the index lists it."""
    version = names.get(oci.VERSION)
    return Descriptor(
        media_type=descriptor.media_type,
        sha256=descriptor.sha256,
        num_bytes=descriptor.num_bytes,
        annotations={} if version is None else {oci.REF_NAME: version},
        artifact_type=artifact_type,
    )
