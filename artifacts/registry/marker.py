"""What makes a place a registry: registry.json, and the policy beside it. Knows no policy."""

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.records import (
    FORMAT,
    FORMAT_VERSION,
    RegistryMarker,
    encode_record,
)
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import read_record, shown


def create_registry(storage: RegistryStorage, policy: str) -> None:
    """Make a registry of an empty place.

    Args:
        storage: the place.
        policy: text of policy.toml.

    Raises:
        UsageError: there is a registry already.
        RunFailedError: the place cannot be written to.
    """
    if storage.size(paths.MARKER) is not None:
        raise _taken(storage)
    # The marker comes last: what has one is whole.
    if storage.size(paths.POLICY) is None:
        storage.create(paths.POLICY, policy.encode())
    if not storage.create(paths.MARKER, encode_record(RegistryMarker(), paths.MARKER)):
        raise _taken(storage)


def check_registry(storage: RegistryStorage) -> None:
    """Refuse a place that holds no registry of this format.

    Raises:
        RefusedError: there is none, or one of another format.
    """
    marker = read_record(storage, paths.MARKER, RegistryMarker)
    if marker is None:
        raise RefusedError(
            f"{storage.location}: expected a registry with {paths.MARKER}, found none; "
            "`infinity-compile registry init` makes one"
        )
    if (marker.format, marker.format_version) != (FORMAT, FORMAT_VERSION):
        raise RefusedError(
            f"{shown(storage, paths.MARKER)}: expected {FORMAT} {FORMAT_VERSION}, found "
            f"{marker.format} {marker.format_version}; use the release that wrote it"
        )


def _taken(storage: RegistryStorage) -> UsageError:
    return UsageError(
        f"{storage.location}: expected a place without a registry, found one; nothing was changed"
    )
