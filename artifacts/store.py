"""Opening artifact directories, strictly. Knows nothing of engines, models or HTTP."""

import os
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.codec import artifact_id, decode_manifest
from infinity_v3.artifacts.digest import DigestPolicy, open_beneath
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.integrity import check_digests, check_files, check_writers
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.manifest import FileEntry, Manifest
from infinity_v3.artifacts.memo import DigestMemo, memo_directory
from infinity_v3.artifacts.native import NativeFile
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.tree import scan_tree

MAX_MANIFEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An opened artifact: its manifest was read strictly and its files were checked."""

    path: Path
    manifest: Manifest
    artifact_id: str
    """`sha256:<64 hex>` of artifact.json."""
    digests: DigestPolicy = DigestPolicy.AUTO

    def file(self, relative_path: str) -> FileEntry:
        """Return the manifest's entry of one file.

        Raises:
            RefusedError: the manifest does not list it.
        """
        for entry in self.manifest.files:
            if entry.path == relative_path:
                return entry
        raise RefusedError(f"{self.path}: {relative_path}: not listed in artifact.json")

    def open_native(self, relative_path: str) -> NativeFile:
        """Open a library for loading; use it as a context manager or call `close`.

        Under `DigestPolicy.ALWAYS` its `path` names a descriptor that was opened without following
        links and then hashed; under `AUTO` it is the path of the file.

        Raises:
            RefusedError: not listed, or changed since the artifact was opened.
            RunFailedError: it cannot be read.
        """
        entry = self.file(relative_path)
        if self.digests is DigestPolicy.ALWAYS:
            return NativeFile.hashed(self.path, entry)
        return NativeFile.unchecked(self.path, entry)


def open_artifact(
    path: Path, *, digests: DigestPolicy = DigestPolicy.AUTO, allow_shared: bool = False
) -> Artifact:
    """Read an artifact directory and check it before any weight or library is opened.

    Args:
        path: the directory; it may itself be reached through a link, nothing in it may be one.
        digests: `AUTO` hashes a file once per state of it, `ALWAYS` every time.
        allow_shared: accept native code that group or others can write to, or that another user
            owns.

    Raises:
        RefusedError: not an artifact, or it differs from its manifest; names the key or file.
        RunFailedError: something cannot be read.
    """
    root = _resolve(path)
    data = _read_manifest(root)
    try:
        manifest = decode_manifest(data)
    except RefusedError as error:
        raise RefusedError(f"{root}: {error}") from error
    identity = artifact_id(data)
    tree = scan_tree(root)
    check_files(tree, manifest)
    if not allow_shared:
        check_writers(tree, manifest)
    memo = DigestMemo(identity, memo_directory(os.environ))
    check_digests(tree, manifest, memo, digests)
    return Artifact(path=root, manifest=manifest, artifact_id=identity, digests=digests)


def _resolve(path: Path) -> Path:
    with os_errors_as_run_failed("read", path):
        try:
            root = path.resolve(strict=True)
        except (FileNotFoundError, NotADirectoryError, RuntimeError):
            raise _not_an_artifact(path, "nothing") from None
        if not root.is_dir():
            raise _not_an_artifact(path, "a file")
    return root


def _read_manifest(root: Path) -> bytes:
    try:
        descriptor = open_beneath(root, MANIFEST_FILE)
    except FileNotFoundError:
        raise _not_an_artifact(root, "a directory without it") from None
    except OSError as error:
        # A link ends in ELOOP here; the scan says so by name.
        scan_tree(root)
        with os_errors_as_run_failed("read", root / MANIFEST_FILE):
            raise error
    with os_errors_as_run_failed("read", root / MANIFEST_FILE), os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_MANIFEST_BYTES + 1)
    if len(data) > MAX_MANIFEST_BYTES:
        raise RefusedError(f"{root}: {MANIFEST_FILE}: expected at most {MAX_MANIFEST_BYTES} bytes")
    return data


def _not_an_artifact(path: Path, found: str) -> RefusedError:
    return RefusedError(
        f"{path}: expected an artifact directory with {MANIFEST_FILE}, found {found}; "
        "`infinity-compile model CHECKPOINT --out DIR` makes one"
    )
