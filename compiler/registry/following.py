"""Looks at a channel again and again, and has what it points to in a cache. Prints nothing."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.pull_cache import pull_into_cache
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved

MAX_WAIT_S = 60.0
"""Between two looks at a registry that cannot be read, unless the interval is longer."""

OpenRegistry = Callable[[], Registry]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedArtifact:
    """What a reference stands for, and where it lies now.

    Attributes:
        channel, event: the channel asked and the number of its last move; None = none was.
    """

    id: str
    name: str
    version: str
    channel: str | None
    event: int | None
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why there is nothing to tell of."""

    error: str
    exit_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """Whoever follows lives; `next_within_s`: the next word comes that soon, if all is well."""

    next_within_s: float


def cached(
    registry: Registry,
    resolved: Resolved,
    cache: Path,
    advance: Callable[[int], None] = lambda _: None,
) -> CachedArtifact:
    """Have an artifact in the cache.

    Raises:
        InfinityError: it cannot be had, or nobody who is trusted has signed it.
    """
    path = pull_into_cache(registry, resolved, cache, advance=advance)
    return CachedArtifact(
        id=resolved.id,
        name=resolved.name,
        version=resolved.version,
        channel=resolved.channel,
        event=None if resolved.event is None else resolved.event.seq,
        path=str(path),
    )


class ChannelFollower:
    """One channel. The registry may come and go.

    Args:
        open_registry: called until it succeeds once.
        reference: names a channel.
        cache: where artifacts are pulled to.
        interval_s: seconds between two looks while all is well.
        advance: called before a pull, with 0, and then with bytes as they are pulled.
    """

    def __init__(
        self,
        open_registry: OpenRegistry,
        reference: Reference,
        cache: Path,
        interval_s: float,
        *,
        advance: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._open = open_registry
        self._reference = reference
        self._cache = cache
        self._interval_s = interval_s
        self._advance = advance
        self._registry: Registry | None = None
        self._told: CachedArtifact | None = None
        self._trouble: Trouble | None = None
        self.wait_s = interval_s
        """Seconds until the next look."""

    def look(self) -> CachedArtifact | Trouble | None:
        """Ask the registry once; None = there is nothing new since what was told last.

        What is wrong is told once, and when all is well again the artifact is told again.
        """
        try:
            found = self._artifact()
        except InfinityError as error:
            reason = self._reason_of(error)
            return self._note_trouble(Trouble(error=str(reason), exit_code=reason.exit_code))
        is_news = found != self._told or self._trouble is not None
        self._told, self._trouble, self.wait_s = found, None, self._interval_s
        return found if is_news else None

    def _artifact(self) -> CachedArtifact:
        if self._registry is None:
            self._registry = self._open()
        registry, reference = self._registry, self._reference
        if reference.channel is None:
            raise RefusedError(
                f"{reference.text}: expected name:channel to follow, found no channel"
            )
        told, state = self._told, registry.channel(reference.name, reference.channel)
        if told is not None and state.event is not None and state.event.seq == told.event:
            return told
        resolved = registry.resolve(reference)
        self._advance(0)
        return cached(registry, resolved, self._cache, self._advance)

    def _reason_of(self, error: InfinityError) -> InfinityError:
        """A registry whose place is empty looks like a damaged one, and is only away."""
        if self._registry is None or not isinstance(error, RefusedError):
            return error
        storage = self._registry.storage
        try:
            is_there = storage.size(paths.MARKER) is not None
        except InfinityError as outage:
            return outage
        return error if is_there else absence(storage.location)

    def _note_trouble(self, trouble: Trouble) -> Trouble | None:
        """What must not be used is looked at as often as before: it can be mended at any time."""
        is_news = self._trouble is None or trouble.error != self._trouble.error
        self._trouble = trouble
        is_outage = trouble.exit_code == RunFailedError.exit_code
        longer_s = min(self.wait_s * 2, MAX_WAIT_S) if is_outage else self._interval_s
        self.wait_s = max(self._interval_s, longer_s)
        return trouble if is_news else None


def absence(location: str) -> RunFailedError:
    """The place of a registry is empty: what was followed there is out of reach, not damaged."""
    return RunFailedError(
        f"{location}: expected a registry with {paths.MARKER}, found none: is the place mounted?"
    )
