"""`registry pull --cache` and `registry follow`: how servers have artifacts in their cache.

Knows nothing of servers.
"""

import json
import os
import select
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import TextIO

import click

from infinity_v3.artifacts.registry.open_registry import open_registry
from infinity_v3.artifacts.registry.open_storage import default_location
from infinity_v3.artifacts.registry.reference import Reference, parse_reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.compiler.registry.following import (
    CachedArtifact,
    ChannelFollower,
    Trouble,
    cached,
)

DEFAULT_INTERVAL_S = 10.0
_Command = Callable[..., None]
Sleep = Callable[[float], bool]
"""Waits so many seconds; False = nobody wants to know any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheOrder:
    """What is wanted in a cache.

    Attributes:
        location: of the registry; None = the default one.
        key: public key that has to have signed artifact and move; None = nobody need have.
    """

    reference: Reference
    cache: Path
    location: str | None
    key: Path | None

    def open_registry(self) -> Registry:
        """Open the registry; its newest events are remembered in the cache.

        Raises:
            InfinityError: there is none, or the key is none.
        """
        location = self.location or default_location(os.environ)
        if self.key is None:
            return open_registry(location)
        # Not before a key was given: the library takes time to load.
        from infinity_v3.artifacts.registry.ed25519 import read_verifier

        verifier = read_verifier([self.key])
        return open_registry(location, verifier=verifier, seen=SeenEvents(self.cache))


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


def cache_options(command: _Command) -> _Command:
    """Give a command REFERENCE and the options of a `CacheOrder`, which it gets as `order`."""

    @click.argument("reference")
    @click.option(
        "--cache",
        type=click.Path(path_type=Path),
        required=True,
        metavar="DIR",
        help="Cache to pull into: below it, one directory per artifact id.",
    )
    @click.option(
        "--registry",
        "location",
        metavar="LOCATION",
        help="Registry to ask. [env: INFINITY_REGISTRY]",
    )
    @click.option(
        "--key",
        type=click.Path(path_type=Path),
        metavar="FILE",
        help="Public key that has to have signed the artifact, and the move of its channel.",
    )
    @wraps(command)
    def with_order(
        reference: str,
        cache: Path,
        location: str | None,
        key: Path | None,
        **more: object,
    ) -> None:
        place = location or os.environ.get("INFINITY_REGISTRY") or None
        order = CacheOrder(
            reference=parse_reference(reference), cache=cache, location=place, key=key
        )
        command(order=order, **more)

    return with_order


@click.command()
@cache_options
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
    "--until-eof", is_flag=True, help="End when standard input ends, as with the process behind it."
)
@click.option("--json", "is_json", is_flag=True, help="Print one JSON object a line, for programs.")
def follow(order: CacheOrder, interval_s: float, until_eof: bool, is_json: bool) -> None:
    """Follow the channel of REFERENCE until interrupted: pull what it is moved to, and say so.

    The first line tells what the channel points to now. An artifact is in the cache, and verified,
    when its line appears. What goes wrong is told once, and tried again.
    """
    follower = ChannelFollower(order.open_registry, order.reference, order.cache, interval_s)
    # What is written to sys.stdout appears when a command has ended, and this one does not.
    output = sys.__stdout__ or sys.stdout
    run_follow(follower, output, _until_eof if until_eof else _sleep, is_json=is_json)


def run_follow(follower: ChannelFollower, output: TextIO, sleep: Sleep, *, is_json: bool) -> None:
    """Print a line for each change of a channel until nobody wants to know."""
    is_wanted = True
    while is_wanted:
        news = follower.look()
        if news is not None:
            output.write(_line(news, is_json=is_json))
            output.flush()
        is_wanted = sleep(follower.wait_s)


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
