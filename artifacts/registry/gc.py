"""Removes what no version and no log needs any more. Knows nothing of why it is not needed.

Order: records before manifests before blobs, so that a killed run leaves only what the next one
removes.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass

from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.holdings import Holdings, read_holdings
from infinity_v3.artifacts.registry.storage import RegistryStorage

DEFAULT_GRACE_S = 24 * 3600.0
_JSON = ".json"
_SIG = ".sig"


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A file that was removed, or would be."""

    path: str
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GcReport:
    """What a run did.

    Attributes:
        removed: in the order of removal.
        young: files that nothing needs, but that are younger than the grace.
        temporaries: unfinished files of killed writers that were removed.
    """

    removed: tuple[Removal, ...]
    young: tuple[str, ...]
    temporaries: int
    is_dry_run: bool

    @property
    def num_bytes(self) -> int:
        """Bytes of all removed files."""
        return sum(removal.num_bytes for removal in self.removed)


def collect_garbage(storage: RegistryStorage, *, grace_s: float, is_dry_run: bool) -> GcReport:
    """Remove what nothing needs and what is older than the grace.

    Args:
        storage: a registry.
        grace_s: files written less long ago stay: a push may be about to need them.
        is_dry_run: find and remove nothing.

    Raises:
        RefusedError: a log, version or manifest is damaged; nothing was removed.
        RunFailedError: the place cannot be read or written.
    """
    holdings = read_holdings(storage)
    oldest_s = time.time() - grace_s
    removed: list[Removal] = []
    young: list[str] = []
    for path in _unneeded(storage, holdings):
        written_s = storage.modified_s(path)
        if written_s is None:
            continue  # another run was faster
        if written_s > oldest_s:
            young.append(path)
            continue
        removed.append(Removal(path=path, num_bytes=storage.size(path) or 0))
        if not is_dry_run:
            storage.delete(path)
    return GcReport(
        removed=tuple(removed),
        young=tuple(young),
        temporaries=0 if is_dry_run else storage.remove_stale_temporaries(grace_s),
        is_dry_run=is_dry_run,
    )


def _unneeded(storage: RegistryStorage, holdings: Holdings) -> Iterator[str]:
    for name, versions in holdings.versions.items():
        yield from _of_retired(storage, name, versions)
    for entry in storage.list(paths.MANIFESTS):
        if entry.endswith(_JSON) and f"sha256:{entry[: -len(_JSON)]}" not in holdings.manifests:
            yield f"{paths.MANIFESTS}/{entry}"
    for entry in storage.list(paths.BLOBS):
        if entry not in holdings.blobs:
            yield paths.blob(entry)


def _of_retired(storage: RegistryStorage, name: str, versions: frozenset[str]) -> Iterator[str]:
    """Records and signatures of versions that are not there any more."""
    for entry in storage.list(paths.versions(name)):
        if entry.endswith(_JSON) and entry[: -len(_JSON)] not in versions:
            yield f"{paths.versions(name)}/{entry}"
        if entry.endswith(_SIG) and entry[: -len(_SIG)] not in versions:
            folder = f"{paths.versions(name)}/{entry}"
            yield from (f"{folder}/{key_id}" for key_id in storage.list(folder))
