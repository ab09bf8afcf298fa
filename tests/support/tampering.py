"""Copies of artifacts in which a file was replaced and the manifest says that it belongs there.

What the digests can't catch is left to the loader and to the parity check: this makes such cases.
"""

import shutil
from dataclasses import replace
from pathlib import Path

from infinity_v3.artifacts.codec import decode_manifest, encode_manifest
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.writer import describe_files


def copy_artifact(artifact: Path, copy: Path) -> Path:
    """Copy an artifact to a path that does not exist; returns it."""
    return Path(shutil.copytree(artifact, copy))


def replace_file(artifact: Path, relative_path: str, content: bytes) -> None:
    """Change a listed file and its entries in the manifest. The artifact's id becomes another."""
    path = artifact / relative_path
    # A new file: the old one may be mapped by this process, which must not see it change.
    path.unlink()
    path.write_bytes(content)
    path.chmod(0o644)
    manifest = decode_manifest((artifact / MANIFEST_FILE).read_bytes())
    files = describe_files(artifact)
    entries = {entry.path: entry for entry in files}
    targets = tuple(
        replace(target, files=tuple(entries[entry.path] for entry in target.files))
        for target in manifest.targets
    )
    changed = replace(manifest, files=files, targets=targets)
    (artifact / MANIFEST_FILE).write_bytes(encode_manifest(changed))
