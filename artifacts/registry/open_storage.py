"""From a location as users write it to the storage there. Touches no file and no network."""

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.user_cache import user_data


def default_location(environ: Mapping[str, str]) -> str:
    """Return the registry of a user who names none: `$XDG_DATA_HOME/infinity_v3/registry`.

    Raises:
        UsageError: the user has no home directory.
    """
    data = user_data(environ)
    if data is None:
        raise UsageError(
            "expected a registry or a home directory to look for one in, found neither; name one "
            "with --registry LOCATION"
        )
    return str(data / "registry")


def open_storage(location: str, *, unsafe_channel_writes: bool = False) -> RegistryStorage:
    """Open the place that a registry lies in.

    Args:
        location: a path, which may begin with `~`; a `file:` URL; or any URL that fsspec knows.
        unsafe_channel_writes: let `create` look first and write then, where a store cannot do both
            at once.

    Raises:
        UsageError: not a location, or the package that reads its kind of URL is not installed.
    """
    if not location:
        raise UsageError("expected the path or URL of a registry, found an empty text")
    if location.startswith("file:"):
        return LocalStorage(_path_of(location))
    if "://" in location:
        # Loaded here, as local registries need no fsspec.
        from infinity_v3.artifacts.registry.fsspec_storage import FsspecStorage

        return FsspecStorage(location, unsafe_channel_writes=unsafe_channel_writes)
    return LocalStorage(_expanded(location))


def _path_of(url: str) -> Path:
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    if parts.netloc not in ("", "localhost") or not path.is_absolute():
        raise UsageError(f"{url}: expected file:///PATH with an absolute path")
    return path


def _expanded(location: str) -> Path:
    try:
        return Path(location).expanduser()
    except RuntimeError:
        raise UsageError(
            f"{location}: expected a path, found the home directory of an unknown user; write the "
            "path in full"
        ) from None
