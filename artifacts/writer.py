"""Building an artifact directory beside its final path and publishing it in one step.

Nothing is left on failure. Knows nothing of what the files mean.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from infinity_v3.artifacts.codec import artifact_id, encode_manifest
from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.integrity import check_digests, check_files
from infinity_v3.artifacts.layout import BUILD_FILE, MANIFEST_FILE, PROFILE_FILE
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.memo import DigestMemo, memo_directory
from infinity_v3.artifacts.os_errors import DISK_FULL, os_errors_as_run_failed, run_failed
from infinity_v3.artifacts.output_lock import OutputLock, partial_path, remove_stale_partials
from infinity_v3.artifacts.profile import Profile, decode_profile, profile_to_json
from infinity_v3.artifacts.publish import (
    drop_shared_write,
    existing_output,
    rename_without_overwrite,
    sync_paths,
    sync_tree,
)
from infinity_v3.artifacts.rules import check_name
from infinity_v3.artifacts.store import Artifact
from infinity_v3.artifacts.tree import describe_files, scan_tree
from infinity_v3.artifacts.typed_json import Location, canonical_bytes

__all__ = ["ArtifactWriter", "describe_files"]


class ArtifactWriter:
    """A context in which files are put below `stage`, ended by `commit`.

    Leaving the context without `commit`, by an error or Ctrl-C, removes everything. After a kill,
    the next writer to the same path removes what was left. Used by one thread.
    """

    def __init__(self, out: Path) -> None:
        self._given = out
        self._created_parents: list[Path] = []
        self._output: Path | None = None
        self._lock: OutputLock | None = None
        self._stage: Path | None = None

    @property
    def stage(self) -> Path:
        """The directory to fill, on the same file system as the output."""
        if self._stage is None:
            raise RuntimeError("ArtifactWriter is used outside its context; this is a bug")
        return self._stage

    @property
    def output(self) -> Path:
        """Where the artifact will be, absolute."""
        return self._reserved_output()

    def __enter__(self) -> "ArtifactWriter":
        """Reserve the output.

        Raises:
            UsageError: the output exists, lies in another artifact, or another process is writing
                to it.
            RunFailedError: its directory cannot be written to.
        """
        try:
            with os_errors_as_run_failed("write", self._given):
                self._reserve()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._clean_up()
        if isinstance(error, OSError) and self._is_ours(error):
            raise run_failed("write", self._given, error) from error

    def write_manifest(self, manifest: Manifest) -> str:
        """Put artifact.json into the stage, replacing an earlier one; the stage can then be opened.

        Returns:
            The artifact id.

        Raises:
            RefusedError: the manifest breaks a rule of the format.
            RunFailedError: it cannot be written.
        """
        data = encode_manifest(manifest)
        with os_errors_as_run_failed("write", self.stage / MANIFEST_FILE):
            self._write(MANIFEST_FILE, data)
            drop_shared_write(scan_tree(self.stage))
        return artifact_id(data)

    def commit(
        self, manifest: Manifest, *, profile: Mapping[str, object], build: Mapping[str, object]
    ) -> Artifact:
        """Check the stage against the manifest, make it durable and rename it to the output.

        Args:
            manifest: the final one; lists every file of the stage.
            profile: the object of profile.json, or empty for "nothing measured".
            build: the object of build.json; the keys of its `labels` must be names.

        Raises:
            RefusedError: the stage differs from the manifest, or a document breaks its format.
            UsageError: the output came into being meanwhile.
            RunFailedError: the disk is full or a path cannot be written; nothing was published.
        """
        return self._publish(manifest, _documents(profile, build))

    def commit_copy(self, manifest: Manifest, documents: Mapping[str, bytes]) -> Artifact:
        """Like `commit`, for a copy of an artifact: its documents are written as they are.

        Args:
            manifest: the original's.
            documents: content of profile.json and build.json by file name, where the original has
                them.
        """
        return self._publish(manifest, documents)

    def _publish(self, manifest: Manifest, documents: Mapping[str, bytes]) -> Artifact:
        output = self._reserved_output()
        with os_errors_as_run_failed("write", output):
            for name, data in documents.items():
                self._write(name, data)
            identity = self.write_manifest(manifest)
            tree = scan_tree(self.stage)
            check_files(tree, manifest)
            memo = DigestMemo(identity, memo_directory(os.environ))
            check_digests(tree, manifest, memo, DigestPolicy.ALWAYS)
            sync_tree(tree)
            rename_without_overwrite(self.stage, output)
            self._created_parents.clear()
            sync_paths([output.parent])
        return Artifact(path=output, manifest=manifest, artifact_id=identity)

    def _reserve(self) -> None:
        if self._given.name in ("", ".."):
            raise UsageError(f"{self._given}: expected the path of a new directory")
        if os.path.lexists(self._given):
            raise existing_output(self._given)
        _check_outside(self._given)
        self._create_parents(self._given.absolute().parent)
        output = self._given.parent.resolve() / self._given.name
        self._output = output
        self._lock = OutputLock(output)
        self._lock.acquire()
        if os.path.lexists(output):
            raise existing_output(output)
        remove_stale_partials(output)
        self._stage = partial_path(output, secrets.token_hex(8))
        self._stage.mkdir(mode=0o755)

    def _create_parents(self, parent: Path) -> None:
        missing = [path for path in (parent, *parent.parents) if not path.exists()]
        for path in reversed(missing):
            path.mkdir(exist_ok=True)
            self._created_parents.append(path)

    def _reserved_output(self) -> Path:
        if self._output is None:
            raise RuntimeError("ArtifactWriter is used outside its context; this is a bug")
        return self._output

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.stage / f".{name}.tmp"
        temporary.write_bytes(data)
        temporary.replace(self.stage / name)

    def _clean_up(self) -> None:
        if self._stage is not None:
            # After commit the stage has moved away and this finds nothing.
            shutil.rmtree(self._stage, ignore_errors=True)
        if self._lock is not None:
            self._lock.release()
        for path in reversed(self._created_parents):
            try:
                path.rmdir()
            except OSError:
                break  # Someone else put something there.

    def _is_ours(self, error: OSError) -> bool:
        """Tell a failure to fill the stage from one of the caller's own files."""
        names_stage = self._stage is not None and str(error.filename).startswith(str(self._stage))
        return error.errno in DISK_FULL or names_stage


def _check_outside(output: Path) -> None:
    """Refuse a place in an artifact: a file that its manifest does not list would spoil it."""
    parent = output.parent.resolve()
    for folder in (parent, *parent.parents):
        if (folder / MANIFEST_FILE).exists():
            raise UsageError(
                f"{output}: lies in the artifact {folder}, which must hold its own files only; "
                "choose a path outside it"
            )


def _documents(profile: Mapping[str, object], build: Mapping[str, object]) -> Mapping[str, bytes]:
    labels = build.get("labels")
    if isinstance(labels, Mapping):
        for key in labels:
            check_name(key, Location(BUILD_FILE).key("labels").key(key))
    facts = canonical_bytes(profile or profile_to_json(Profile()), Location(PROFILE_FILE))
    decode_profile(facts)
    return {PROFILE_FILE: facts, BUILD_FILE: canonical_bytes(build, Location(BUILD_FILE))}
