"""Carries artifacts of earlier formats over into this release's, offline.

Owns the steps from one format version to the next. The first format is the current one, so the
table of steps is empty; a release that changes the format adds the step from the one before.
"""

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from infinity_v3.artifacts.codec import decode_manifest
from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.layout import BUILD_FILE, MANIFEST_FILE, PROFILE_FILE
from infinity_v3.artifacts.manifest import FORMAT, FORMAT_VERSION, Manifest
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.store import MAX_MANIFEST_BYTES, Artifact, open_artifact
from infinity_v3.artifacts.tree import scan_tree
from infinity_v3.artifacts.typed_json import (
    JsonObject,
    Location,
    canonical_bytes,
    check_object,
    parse,
    show,
)
from infinity_v3.artifacts.writer import ArtifactWriter
from infinity_v3.compiler.progress import Progress

Step = Callable[[JsonObject, Path], JsonObject]
"""Takes the manifest of one version and a copy of the artifact's files, which it may change; gives
the manifest of the next version."""

STEPS: Mapping[int, Step] = {}
"""By the version that a step starts from."""


def upgrade_artifact(
    old: Path, new: Path, progress: Progress, steps: Mapping[int, Step] = STEPS
) -> Artifact:
    """Write an artifact of an earlier format anew; the old one stays as it is.

    The result is read as strictly as any artifact before it appears.

    Raises:
        UsageError: it has the current format already, or the output exists.
        RefusedError: no artifact, of a newer format, of one that no step leads from, or its files
            are not what its manifest says.
        RunFailedError: a file cannot be read or written.
    """
    root = old.resolve()
    with _errors_name(root, root):
        document = _read(root)
        pending = _path_of(document, root, steps)
        tree = scan_tree(root)
    with ArtifactWriter(new) as writer, _errors_name(root, writer.stage):
        with progress.stage("copy"), os_errors_as_run_failed("copy", root):
            for path in sorted(tree.files):
                (writer.stage / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / path, writer.stage / path)
        for version in pending:
            with progress.stage(f"format {version} to {version + 1}"):
                document = steps[version](document, writer.stage)
        manifest = _decode(document)
        with progress.stage("publish"):
            artifact = writer.commit(
                manifest,
                profile=_record(writer.stage / PROFILE_FILE),
                build=_record(writer.stage / BUILD_FILE),
            )
    return open_artifact(artifact.path, digests=DigestPolicy.ALWAYS)


@contextmanager
def _errors_name(root: Path, folder: Path) -> Iterator[None]:
    """Let what is refused in `folder`, the artifact or a copy of it, begin with its path."""
    try:
        yield
    except RefusedError as error:
        raise RefusedError(f"{root}: {str(error).removeprefix(f'{folder}: ')}") from error


def _read(root: Path) -> JsonObject:
    path = root / MANIFEST_FILE
    with os_errors_as_run_failed("read", path):
        try:
            with path.open("rb") as file:
                data = file.read(MAX_MANIFEST_BYTES + 1)
        except (FileNotFoundError, NotADirectoryError):
            raise RefusedError(
                f"{root}: expected an artifact directory with {MANIFEST_FILE}, found none"
            ) from None
    at = Location(MANIFEST_FILE)
    document = check_object(parse(data[:MAX_MANIFEST_BYTES], at), at)
    if document.get("format") != FORMAT:
        found = show(document.get("format"))
        raise at.key("format").refuse(f"expected '{FORMAT}', found {found}")
    return document


def _path_of(document: JsonObject, root: Path, steps: Mapping[int, Step]) -> range:
    """The versions whose steps lead to the current format."""
    at = Location(MANIFEST_FILE).key("format_version")
    version = document.get("format_version")
    if type(version) is not int:
        raise at.refuse(f"expected an integer, found {show(version)}")
    if version == FORMAT_VERSION:
        raise UsageError(f"{root}: has format {version}, the current one; nothing to do")
    if version > FORMAT_VERSION:
        raise at.refuse(
            f"found {version}, this release writes {FORMAT_VERSION}: use {_writer_of(document)}, "
            "which wrote it, or a later one"
        )
    for number in range(version, FORMAT_VERSION):
        if number not in steps:
            raise at.refuse(
                f"found {version}, no step leads from format {number} to {number + 1} in this "
                f"release: use {_writer_of(document)}, which wrote it, or compile the checkpoint "
                "again"
            )
    return range(version, FORMAT_VERSION)


def _writer_of(document: JsonObject) -> str:
    provenance = document.get("provenance")
    release = provenance.get("infinity_v3") if isinstance(provenance, dict) else None
    return f"infinity_v3 {show(release)}" if isinstance(release, str) else "the release"


def _decode(document: JsonObject) -> Manifest:
    return decode_manifest(canonical_bytes(document, Location(MANIFEST_FILE)))


def _record(path: Path) -> JsonObject:
    """A document outside the identity; an artifact without one is whole."""
    if not path.exists():
        return JsonObject()
    at = Location(path.name)
    return check_object(parse(path.read_bytes(), at), at)
