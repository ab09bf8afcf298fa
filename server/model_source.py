"""Tells what a `--model-id` value is: an artifact, a reference, a checkpoint directory or a hub id.

Looks at the file system only; asks no registry, downloads and compiles nothing.
"""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.names import is_name
from infinity_v3.artifacts.registry.reference import Reference, is_marked, parse_reference

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_CONFIG_FILES = ("config.json", "rl_agent_config.json")
_PATH_STARTS = ("/", "./", "../", "~")


class SourceKind(Enum):
    """What a value stands for."""

    ARTIFACT = "artifact directory"
    REFERENCE = "registry reference"
    CHECKPOINT = "checkpoint directory"
    HUB = "hub id"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from.

    Attributes:
        path: of a directory, else None.
        reference: of a reference; of a hub id, what it would be if a registry knew that name.
    """

    model_id: str
    kind: SourceKind
    path: Path | None = None
    revision: str | None = None
    reference: Reference | None = None

    @property
    def described(self) -> str:
        """The kind with its article."""
        return f"{'an' if self.kind is SourceKind.ARTIFACT else 'a'} {self.kind.value}"


def find_source(model_id: str, revision: str | None) -> ModelSource:
    """Classify one value.

    Raises:
        UsageError: it is none of the four, or a revision is given for another kind than a hub id.
    """
    source = _classify(model_id)
    if revision is None:
        return source
    if source.kind is not SourceKind.HUB:
        raise UsageError(
            f"--revision {revision}: only a hub id has revisions, but --model-id {model_id} is "
            f"{source.described}; drop it or write 'none'"
        )
    return ModelSource(model_id=model_id, kind=source.kind, revision=revision)


def _classify(model_id: str) -> ModelSource:
    try:
        path = Path(model_id).expanduser()
        if path.is_dir():
            return _directory(model_id, path)
        is_file = path.exists()
    except (OSError, RuntimeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such directory"
        raise UsageError(f"--model-id {model_id}: {reason}") from None
    if is_file:
        raise UsageError(f"--model-id {model_id}: expected a directory, found a file")
    if model_id.startswith(_PATH_STARTS):
        raise UsageError(f"--model-id {model_id}: no such directory")
    if is_marked(model_id):
        return ModelSource(
            model_id=model_id, kind=SourceKind.REFERENCE, reference=_parsed(model_id)
        )
    if not _HUB_ID.fullmatch(model_id) and not is_name(model_id):
        raise UsageError(
            f"--model-id {model_id}: expected an existing directory, a registry reference or a hub "
            "id such as org/name"
        )
    reference = Reference(name=model_id) if is_name(model_id) else None
    return ModelSource(model_id=model_id, kind=SourceKind.HUB, reference=reference)


def _parsed(model_id: str) -> Reference:
    try:
        return parse_reference(model_id)
    except UsageError as error:
        raise UsageError(f"--model-id {error}") from None


def _directory(model_id: str, path: Path) -> ModelSource:
    if (path / MANIFEST_FILE).exists():
        return ModelSource(model_id=model_id, kind=SourceKind.ARTIFACT, path=path)
    if any((path / name).is_file() for name in _CONFIG_FILES):
        return ModelSource(model_id=model_id, kind=SourceKind.CHECKPOINT, path=path)
    raise UsageError(
        f"--model-id {model_id}: the directory holds neither {MANIFEST_FILE} (an artifact) nor "
        "config.json (a checkpoint)"
    )
