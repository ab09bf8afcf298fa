"""`registry pull --cache` and `registry follow`: how servers have artifacts in their cache.

Knows nothing of servers.
"""

import json
import select
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TextIO

import click

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.reference import Reference, parse_reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.following import (
    CachedArtifact,
    ChannelFollower,
    Heartbeat,
    Trouble,
    absence,
    cached,
)
from infinity_v3.compiler.registry.keys import trusted_keys_option, verifier_of
from infinity_v3.compiler.registry.place import RegistryPlace, registry_options

DEFAULT_INTERVAL_S = 10.0
_LOOK_S = 30.0
"""A look, and the wait before it, may take that long."""
_FILE_S = 600.0
"""A file may be pulled, or an artifact in the cache be verified, for that long."""
_Command = Callable[..., None]
Sleep = Callable[[float], bool]
"""Waits so many seconds; False = nobody wants to know any more."""
Beat = Callable[[float], None]
"""Says that this process lives, and within how many seconds it says so again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOrder:
    """What is wanted in a cache.

    Attributes:
        keys: public keys, one of which has to have signed artifact and move; () = nobody need have.
    """

    place: RegistryPlace
    reference: Reference
    cache: Path
    keys: tuple[Path, ...] = ()

    def open_registry(self) -> Registry:
        """Open the registry; its newest events are remembered in the cache.

        Raises:
            InfinityError: there is none, or a key is none.
        """
        verifier = verifier_of(self.keys)
        seen = None if verifier is None else SeenEvents(self.cache)
        return self.place.open(verifier=verifier, seen=seen)

    def open_present(self) -> Registry:
        """The same, but a place without a registry is taken for one that is away.

        Raises:
            InfinityError: as for `open_registry`; RunFailedError where there is none.
        """
        try:
            return self.open_registry()
        except RefusedError:
            storage = self.place.storage()
            if storage.size(paths.MARKER) is None:
                raise absence(storage.location) from None
            raise


@dataclass(frozen=True, slots=True, kw_only=True)
class Destination:
    """Where a pull goes to: exactly one of `out` and `cache` is set."""

    out: Path | None
    cache: Path | None
    if_present: bool


def destination_options(command: _Command) -> _Command:
    """Give a command `--out`, `--cache` and `--if-present` as `destination: Destination`."""

    @click.option(
        "--out",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="The directory to write; must not exist.",
    )
    @click.option(
        "--cache",
        type=click.Path(path_type=Path),
        metavar="DIR",
        help="Instead of --out: a cache with one directory per artifact id, as servers have it. "
        "What is there is verified and not pulled again.",
    )
    @click.option(
        "--if-present",
        is_flag=True,
        help="With --cache: print nothing where the registry has no artifact of that name.",
    )
    @wraps(command)
    def with_destination(
        out: Path | None, cache: Path | None, if_present: bool, **given: object
    ) -> None:
        if (out is None) == (cache is None):
            found = "neither" if out is None else "both"
            raise UsageError(f"expected --out DIR or --cache DIR, found {found}")
        if if_present and cache is None:
            raise UsageError("--if-present: expected --cache DIR with it, found --out")
        command(destination=Destination(out=out, cache=cache, if_present=if_present), **given)

    return with_destination


def run_pull_to_cache(order: CacheOrder, *, if_present: bool, is_json: bool) -> None:
    """Have the artifact of a reference in a cache, and print where.

    Args:
        order: what is wanted.
        if_present: print nothing where the registry knows no such name.
        is_json: print one JSON document.

    Raises:
        InfinityError: it cannot be had.
    """
    registry = order.open_registry()
    if if_present and order.reference.name not in registry.names():
        return
    found = cached(registry, registry.resolve(order.reference), order.cache)
    sys.stdout.write(_line(found, is_json=is_json))


@dataclass(frozen=True, slots=True, kw_only=True)
class Rhythm:
    """How often a channel is looked at, and how long."""

    interval_s: float
    until_eof: bool


def rhythm_options(command: _Command) -> _Command:
    """Give a command `--interval` and `--until-eof` as `rhythm: Rhythm`."""

    @click.option(
        "--interval",
        "interval_s",
        type=click.FloatRange(min=0.0, min_open=True),
        default=DEFAULT_INTERVAL_S,
        show_default=True,
        metavar="SECONDS",
        help="Time between two looks. Shorter learns of a move sooner, and asks more often.",
    )
    @click.option(
        "--until-eof",
        is_flag=True,
        help="End when standard input ends, as with the process behind it. With --json a "
        "line after each look tells that process that this one lives.",
    )
    @wraps(command)
    def with_rhythm(interval_s: float, until_eof: bool, **given: object) -> None:
        command(rhythm=Rhythm(interval_s=interval_s, until_eof=until_eof), **given)

    return with_rhythm


@click.command()
@click.argument("reference", metavar="REF")
@click.option(
    "--cache",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="Cache to pull into: one directory per artifact id.",
)
@rhythm_options
@trusted_keys_option(
    "Refuse artifacts and moves of the channel that were not signed with this Ed25519 key, or one "
    "of several."
)
@registry_options
@json_option
def follow(
    place: RegistryPlace,
    reference: str,
    cache: Path,
    rhythm: Rhythm,
    keys: tuple[Path, ...],
    is_json: bool,
) -> None:
    """Follow the channel of REF until interrupted: pull what it is moved to, and say so.

    The first line tells what the channel points to now. An artifact is in the cache, and verified,
    when its line appears. What goes wrong is told once, and tried again. With --json every line is
    an object.
    """
    order = CacheOrder(place=place, reference=parse_reference(reference), cache=cache, keys=keys)
    # What is written to sys.stdout appears when a command has ended, and this one does not.
    output = sys.__stdout__ or sys.stdout
    beat = partial(_beat, output) if is_json and rhythm.until_eof else _silent
    follower = ChannelFollower(
        order.open_present,
        order.reference,
        order.cache,
        rhythm.interval_s,
        advance=lambda _: beat(_FILE_S),
    )
    sleep = _until_eof if rhythm.until_eof else _sleep
    run_follow(follower, output, sleep, is_json=is_json, beat=beat)


def _silent(_: float) -> None:
    pass


def run_follow(
    follower: ChannelFollower, output: TextIO, sleep: Sleep, *, is_json: bool, beat: Beat = _silent
) -> None:
    """Print a line for each change of a channel until nobody wants to know.

    Args:
        follower: of the channel.
        output: flushed after each line.
        sleep: between two looks.
        is_json: each line is an object.
        beat: called after each look with the seconds within which the next one has ended.
    """
    is_wanted = True
    while is_wanted:
        news = follower.look()
        if news is not None:
            output.write(_line(news, is_json=is_json))
            output.flush()
        beat(max(3 * follower.wait_s, _LOOK_S))
        is_wanted = sleep(follower.wait_s)


def _beat(output: TextIO, next_within_s: float) -> None:
    output.write(json.dumps(asdict(Heartbeat(next_within_s=next_within_s))) + "\n")
    output.flush()


def _sleep(seconds: float) -> bool:
    select.select([], [], [], seconds)
    return True


def _until_eof(seconds: float) -> bool:
    """Whoever started this keeps its standard input open and writes nothing to it."""
    readable, _, _ = select.select([sys.stdin], [], [], seconds)
    return not readable


def _line(news: CachedArtifact | Trouble, *, is_json: bool) -> str:
    if is_json:
        return json.dumps(asdict(news)) + "\n"
    if isinstance(news, Trouble):
        return f"trouble: {news.error}\n"
    event = "" if news.event is None else f" (event {news.event})"
    return f"{news.name} {news.version} {news.id}{event}\n  {news.path}\n"
