"""Fetches a checkpoint from the Hugging Face hub; the only file that imports huggingface_hub.

Knows which files are wanted only by the patterns it is given.
"""

import errno
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import InfinityError, RunFailedError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSnapshot:
    """A checkpoint in the hub's local cache; `commit` is what the revision stands for."""

    path: Path
    commit: str


def is_hub_offline() -> bool:
    """Whether HF_HUB_OFFLINE forbids asking the hub."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE


def fetch_snapshot(repository: str, revision: str | None, patterns: Sequence[str]) -> HubSnapshot:
    """Download what is missing of a repository, or find it in the cache when the hub is offline.

    Args:
        repository: hub id, "org/name".
        revision: commit, tag or branch; None = the default branch.
        patterns: shell patterns of the wanted files.

    Raises:
        UsageError: the hub has no such repository or revision, or refuses access to it.
        RunFailedError: the hub cannot be reached and the cache has no complete copy.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils.tqdm import disable_progress_bars

    disable_progress_bars()
    # The hub's errors derive from the base of its HTTP library, whose name differs by release.
    failures: tuple[type[Exception], ...] = (
        ValueError,
        *(base for base in HfHubHTTPError.__bases__ if issubclass(base, Exception)),
    )
    try:
        folder = snapshot_download(
            repository,
            revision=revision,
            allow_patterns=list(patterns),
            # Offline mode alone would still let the library prepare requests.
            local_files_only=constants.HF_HUB_OFFLINE,
        )
    except failures as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            raise
        raise _translated(error, repository, revision) from error
    path = Path(folder)
    return HubSnapshot(path=path, commit=path.name)


def _translated(error: Exception, repository: str, revision: str | None) -> InfinityError:
    from huggingface_hub import constants, errors

    if isinstance(error, errors.HFValidationError):
        return UsageError(f"{repository}: expected a directory or a hub id (org/name)")
    if isinstance(error, errors.GatedRepoError):
        return UsageError(
            f"{repository}: access is restricted; accept its terms on the hub and set HF_TOKEN"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return UsageError(
            f"{repository}: no directory of that name exists here, and the hub has no such model, "
            "or it is private; check the name, or set HF_TOKEN for a private model"
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return UsageError(f"{repository}: the hub has no revision {revision!r} of it")
    if isinstance(error, errors.LocalEntryNotFoundError):
        return RunFailedError(_not_cached(repository, constants.HF_HUB_OFFLINE))
    return RunFailedError(f"{repository}: the download failed: {_first_line(error)}")


def _not_cached(repository: str, is_offline: bool) -> str:
    if is_offline:
        return (
            f"{repository}: no directory of that name exists here, the hub is offline "
            "(HF_HUB_OFFLINE) and the cache holds no complete copy; unset HF_HUB_OFFLINE or "
            "give a local directory"
        )
    return (
        f"{repository}: no directory of that name exists here, the hub cannot be reached and the "
        "cache holds no complete copy; check the network or give a local directory"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
