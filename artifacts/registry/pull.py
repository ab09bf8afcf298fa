"""From a registry into a new artifact directory, with everything checked on the way.

Knows nothing of which reference was meant, and of who is trusted.
"""

import os
from collections.abc import Callable
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.layout import BUILD_FILE, PROFILE_FILE
from infinity_v3.artifacts.manifest import FileEntry, Manifest
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.local_signature import (
    LocalSignature,
    signature_path,
    write_local_signature,
)
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import CHECK, read_document, read_manifest, shown
from infinity_v3.artifacts.registry.version_signatures import read_signatures
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.writer import ArtifactWriter

Advance = Callable[[int], None]
"""Called with the bytes that were dealt with since the last call."""


def pull(storage: RegistryStorage, resolved: Resolved, out: Path, advance: Advance) -> Artifact:
    """Write the artifact of a version to a path that does not exist.

    Where the version has signatures, `out`.sig holds them.

    Raises:
        UsageError: `out` or its signature file exists.
        RefusedError: a blob is absent or its content is another one; nothing was written.
        RunFailedError: the registry cannot be read or the disk is full; nothing was written.
    """
    manifest = read_manifest(storage, resolved.id)
    signature = find_local_signature(storage, resolved)
    with ArtifactWriter(out) as writer:
        _check_no_signature(out)
        for entry in manifest.files:
            _fetch(storage, entry, writer.stage / entry.path)
            advance(entry.num_bytes)
        return _publish(storage, resolved, manifest, writer, signature)


def pull_bytes(manifest: Manifest) -> int:
    """Bytes that `advance` of a pull adds up to."""
    return sum(entry.num_bytes for entry in manifest.files)


def find_local_signature(storage: RegistryStorage, resolved: Resolved) -> LocalSignature | None:
    """The signatures of a version as they lie beside a directory, None where it has none."""
    found = read_signatures(storage, resolved.name, resolved.version)
    if not found:
        return None
    return LocalSignature.of(resolved.name, resolved.version, resolved.id, found)


def _publish(
    storage: RegistryStorage,
    resolved: Resolved,
    manifest: Manifest,
    writer: ArtifactWriter,
    signature: LocalSignature | None,
) -> Artifact:
    record = resolved.record
    documents = {
        name: read_document(storage, sha256)
        for name, sha256 in ((PROFILE_FILE, record.profile), (BUILD_FILE, record.build))
        if sha256 is not None
    }
    # Before the directory: a server that asks for signatures never sees one without.
    is_written = signature is not None and write_local_signature(writer.output, signature)
    try:
        return writer.commit_copy(manifest, documents)
    except BaseException:
        if is_written:
            signature_path(writer.output).unlink(missing_ok=True)
        raise


def _fetch(storage: RegistryStorage, entry: FileEntry, target: Path) -> None:
    path = paths.blob(entry.sha256)
    with os_errors_as_run_failed("write", target):
        target.parent.mkdir(parents=True, exist_ok=True)
    digest = storage.download(path, target)
    if digest == entry.sha256:
        return
    found = "none" if digest is None else f"another content, sha256 {digest}"
    raise RefusedError(
        f"{shown(storage, path)}: expected {entry.path} of the artifact, found {found}; {CHECK}, "
        "and pushing the artifact again mends it"
    )


def _check_no_signature(out: Path) -> None:
    path = signature_path(out)
    if os.path.lexists(path):
        raise UsageError(f"{path}: already exists; remove it or choose another path")
