"""Tells what a `--model-id` value is: an artifact, a checkpoint directory or a hub id.

Looks at the file system only; downloads and compiles nothing.
"""

import re
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.layout import MANIFEST_FILE

_HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(?:/[A-Za-z0-9][A-Za-z0-9._-]*)?")
_CONFIG_FILES = ("config.json", "rl_agent_config.json")
_PATH_STARTS = ("/", "./", "../", "~")


class SourceKind(Enum):
    """What a value stands for."""

    ARTIFACT = "artifact directory"
    CHECKPOINT = "checkpoint directory"
    HUB = "hub id"


_ARTICLES = {SourceKind.ARTIFACT: "an", SourceKind.CHECKPOINT: "a", SourceKind.HUB: "a"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """Where a model comes from; `path` is None for a hub id."""

    model_id: str
    kind: SourceKind
    path: Path | None = None
    revision: str | None = None


def find_source(model_id: str, revision: str | None) -> ModelSource:
    """Classify one value.

    Raises:
        UsageError: it is none of the three, or a revision is given for another kind than a hub id.
    """
    source = _classify(model_id)
    if revision is None:
        return source
    if source.kind is not SourceKind.HUB:
        raise UsageError(
            f"--revision {revision}: only a hub id has revisions, but --model-id {model_id} is "
            f"{_ARTICLES[source.kind]} {source.kind.value}; drop it or write 'none'"
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
    if any(mark in model_id for mark in (":", "==", "@")):
        raise UsageError(
            f"--model-id {model_id}: looks like a registry reference, which this release does not "
            "serve; give the path of an artifact directory"
        )
    if not _HUB_ID.fullmatch(model_id):
        raise UsageError(
            f"--model-id {model_id}: expected an existing directory or a hub id such as org/name"
        )
    return ModelSource(model_id=model_id, kind=SourceKind.HUB)


def _directory(model_id: str, path: Path) -> ModelSource:
    if (path / MANIFEST_FILE).exists():
        return ModelSource(model_id=model_id, kind=SourceKind.ARTIFACT, path=path)
    if any((path / name).is_file() for name in _CONFIG_FILES):
        return ModelSource(model_id=model_id, kind=SourceKind.CHECKPOINT, path=path)
    raise UsageError(
        f"--model-id {model_id}: the directory holds neither {MANIFEST_FILE} (an artifact) nor "
        "config.json (a checkpoint)"
    )
