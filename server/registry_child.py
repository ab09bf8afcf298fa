"""Has `infinity-compile registry` pull artifacts and follow channels in processes of their own.

Knows nothing of what is done with an artifact.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.server.pulled import PulledArtifact
from infinity_v3.server.tool import Tool, log_line, scrubbed_environment

_ACCESS_VARIABLES = r"XDG_DATA_HOME|(AWS|GOOGLE|AZURE|FSSPEC)_.*"
"""Where the default registry lies, and what object stores are entered with."""


class _Line(msgspec.Struct, kw_only=True):
    """One line of the commands: an artifact, or what is wrong."""

    error: str | None = None
    exit_code: int = 0
    id: str | None = None
    name: str | None = None
    version: str | None = None
    channel: str | None = None
    event: int | None = None
    path: str | None = None
    next_within_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowTrouble:
    """Why a channel cannot be followed just now; it goes on being tried.

    `is_refusal`: the registry answered, and what it gave must not be used.
    """

    sentence: str
    is_refusal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowBeat:
    """The child lives and the registry answers, or refuses to; the next news come within a time."""

    next_within_s: float


FollowNews = PulledArtifact | FollowTrouble | FollowBeat


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryAccess:
    """Where artifacts come from and where they go.

    Attributes:
        location: directory or URL; None = the default one.
        cache: folder that holds `pulled`.
        key: public key that has to have signed; None = nobody need have.
        watch_interval_s: seconds between two looks at a channel.
        hub_cache: download cache of the hub library; None = its own.
    """

    location: str | None
    cache: Path
    key: Path | None = None
    watch_interval_s: float
    hub_cache: Path | None = None


class RegistryChild:
    """Pulls and follows; blocking."""

    def __init__(self, access: RegistryAccess, tool: Tool) -> None:
        self._access = access
        self._tool = tool

    def pull(self, reference: Reference) -> PulledArtifact:
        """Have the artifact of a reference in the cache.

        Raises:
            InfinityError: with the child's last sentence and its exit code.
        """
        found = self._pull(reference)
        if found is None:
            raise RunFailedError(f"--model-id {reference.text}: the pull has said nothing")
        return found

    def pull_if_present(self, reference: Reference) -> PulledArtifact | None:
        """The same for what may be no name of the registry; None = it is none.

        Raises:
            InfinityError: as for `pull`; among others, the registry cannot be asked.
        """
        return self._pull(reference, "--if-present")

    def _pull(self, reference: Reference, *more: str) -> PulledArtifact | None:
        lines: list[str] = []
        command = ["registry", "pull", reference.text, *self._options(), *more]
        end = self._tool.run(command, self._environment(), lines.append)
        if end.code != 0:
            # Its sentence begins with the reference, in most cases.
            sentence = end.sentence.removeprefix(f"{reference.text}: ")
            raise replace(end, sentence=sentence).failure(f"--model-id {reference.text}")
        found = [news for line in lines if isinstance(news := _read(line), PulledArtifact)]
        return found[-1] if found else None

    def follow(self, reference: Reference, on_news: Callable[[FollowNews], None]) -> None:
        """Tell what a channel points to now and whenever that changes, until the child ends.

        Args:
            reference: names a channel.
            on_news: called on this thread; an artifact is in the cache when it is told of.

        Raises:
            InfinityError: the child has ended by itself.
        """

        def tell(line: str) -> None:
            news = _read(line)
            if news is not None:
                on_news(news)

        command = [
            "registry",
            "follow",
            reference.text,
            *self._options(),
            "--interval",
            str(self._access.watch_interval_s),
            "--until-eof",
        ]
        end = self._tool.run(command, self._environment(), tell, ends_with_us=True)
        raise end.failure(f"following {reference.text}")

    def _options(self) -> Sequence[str]:
        access = self._access
        given = (
            ("--registry", access.location),
            ("--cache", access.cache),
            ("--key", access.key),
        )
        words = [word for flag, value in given if value is not None for word in (flag, str(value))]
        return [*words, "--json"]

    def _environment(self) -> dict[str, str]:
        environ = scrubbed_environment(os.environ, also=_ACCESS_VARIABLES)
        if self._access.hub_cache is not None:
            environ["HF_HUB_CACHE"] = str(self._access.hub_cache)
        return environ


def _read(text: str) -> FollowNews | None:
    """What a line says; None where it is none of ours, which the log then shows."""
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.DecodeError, UnicodeError):
        log_line(text)
        return None
    if line.error is not None:
        return FollowTrouble(sentence=line.error, is_refusal=line.exit_code == 3)
    if line.next_within_s is not None:
        return FollowBeat(next_within_s=line.next_within_s)
    if line.id is None or line.name is None or line.path is None:
        return None
    return PulledArtifact(
        path=Path(line.path),
        id=line.id,
        name=line.name,
        version=line.version,
        channel=line.channel,
        event=line.event,
    )
