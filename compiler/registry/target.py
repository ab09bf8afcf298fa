"""What a command was given: an artifact directory, or a reference into a registry."""

import os
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.names import is_name
from infinity_v3.artifacts.registry.pull import pull_bytes
from infinity_v3.artifacts.registry.pull_cache import pull_into_cache
from infinity_v3.artifacts.registry.reference import Reference, is_marked, parse_reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.user_cache import user_cache
from infinity_v3.compiler.progress import Progress
from infinity_v3.compiler.registry.place import RegistryPlace


def find_target(text: str) -> Path | Reference:
    """Tell a path from a reference; what exists is a path.

    Raises:
        UsageError: it is neither.
    """
    path = Path(text)
    if os.path.lexists(path):
        return path
    if is_name(text) or (is_marked(text) and "/" not in text):
        return parse_reference(text)
    raise UsageError(f"{text}: no such artifact; give the directory of one")


def artifact_path(text: str, place: RegistryPlace, progress: Progress) -> Path:
    """The directory of an artifact, pulled into the user's cache where a reference was given.

    Raises:
        UsageError: there is no such directory and it is no reference, or the user has no cache.
        RefusedError: there is no such registry or artifact in it, or it is damaged.
    """
    target = find_target(text)
    if isinstance(target, Path):
        return target
    cache = user_cache(os.environ)
    if cache is None:
        raise UsageError(
            f"{text}: expected a cache directory to pull it into, found none; set XDG_CACHE_HOME, "
            "or pull it with `infinity-compile registry pull`"
        )
    registry, resolved = _look_up(text, target, place)
    total = pull_bytes(registry.manifest(resolved.id))
    with progress.stage(f"pull {resolved.name}=={resolved.version}", total) as stage:
        return pull_into_cache(registry, resolved, cache, advance=stage.advance)


def _look_up(text: str, target: Reference, place: RegistryPlace) -> tuple[Registry, Resolved]:
    """A bare word may be a mistyped path as well, so the refusal speaks of both."""
    try:
        registry = place.open()
    except RefusedError as error:
        if is_marked(text):
            raise
        raise _neither(text, str(error)) from error
    if not is_marked(text) and text not in registry.names():
        raise _neither(text, f"no such name in {registry.location}")
    return registry, registry.resolve(target)


def _neither(text: str, found: str) -> UsageError:
    return UsageError(
        f"{text}: no such artifact; give the directory of one, or a reference into a registry "
        f"({found})"
    )
