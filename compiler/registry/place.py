"""Which registry a command works on: flag, environment, TOML file, else the user's own.

Knows nothing of what a command does there.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path

import click

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.open_registry import open_registry
from infinity_v3.artifacts.registry.open_storage import default_location, open_storage
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.artifacts.registry.signing import SignatureVerifier
from infinity_v3.artifacts.registry.storage import RegistryStorage

REGISTRY_ENV = "INFINITY_REGISTRY"
_Command = Callable[..., None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryPlace:
    """What a command line said of the registry; None = nothing."""

    registry: str | None = None
    config: Path | None = None
    unsafe_channel_writes: bool = False

    def location(self) -> str:
        """The path or URL of the registry.

        Raises:
            UsageError: the TOML file is malformed, nothing names a registry, or what names one is
                empty or names the memory of a process.
        """
        if self.registry is not None:
            return _checked(self.registry, "--registry")
        if (named := os.environ.get(REGISTRY_ENV)) is not None:
            return _checked(named, REGISTRY_ENV)
        return self._in_config() or default_location(os.environ)

    def open(
        self, *, verifier: SignatureVerifier | None = None, seen: SeenEvents | None = None
    ) -> Registry:
        """Open the registry.

        Raises:
            RefusedError: there is none.
        """
        return open_registry(
            self.location(),
            unsafe_channel_writes=self.unsafe_channel_writes,
            verifier=verifier,
            seen=seen,
        )

    def storage(self) -> RegistryStorage:
        """Open the place, whether or not it holds a registry."""
        return open_storage(self.location(), unsafe_channel_writes=self.unsafe_channel_writes)

    def _in_config(self) -> str | None:
        # Not before it is needed: reads the table of a compile's options.
        from infinity_v3.compiler.config_sources import CONFIG_ENV, read_toml

        named = os.environ.get(CONFIG_ENV)
        path = self.config or (Path(named).expanduser() if named else None)
        return None if path is None else _registry_of(read_toml(path), path)


def registry_options(command: _Command) -> _Command:
    """Give a command `--registry` and `--config`; it takes them as `place: RegistryPlace`."""
    return _place_options(command, writes=False)


def registry_write_options(command: _Command) -> _Command:
    """Like `registry_options`, with `--unsafe-channel-writes` for commands that write."""
    return _place_options(command, writes=True)


def _place_options(command: _Command, *, writes: bool) -> _Command:
    @wraps(command)
    def with_place(
        *,
        registry: str | None,
        config: Path | None,
        unsafe_channel_writes: bool = False,
        **given: object,
    ) -> None:
        place = RegistryPlace(
            registry=registry, config=config, unsafe_channel_writes=unsafe_channel_writes
        )
        command(place=place, **given)

    options = [
        click.option(
            "--registry",
            metavar="LOCATION",
            help="Directory or URL of the registry; without it "
            f"$XDG_DATA_HOME/infinity_v3/registry. [env: {REGISTRY_ENV}]",
        ),
        click.option(
            "--config",
            type=click.Path(path_type=Path),
            metavar="FILE.toml",
            help="Options as TOML, of which `registry` is read. [env: INFINITY_COMPILE_CONFIG]",
        ),
    ]
    if writes:
        options.append(
            click.option(
                "--unsafe-channel-writes",
                is_flag=True,
                help="Write events even where the store cannot create a file only if it is absent: "
                "two writers at a time may then lose one another's events.",
            )
        )
    described = with_place
    for option in reversed(options):
        described = option(described)
    return described


def _registry_of(document: Mapping[str, object], path: Path) -> str | None:
    found = document.get("registry")
    if found is not None and not isinstance(found, str):
        raise UsageError(f"{path}: registry: expected a string, the path or URL of a registry")
    return None if found is None else _checked(found, f"{path}: registry")


def _checked(location: str, where: str) -> str:
    if not location.strip():
        raise UsageError(
            f"{where}: expected the path or URL of a registry, found an empty text; give one, or "
            "leave it out for the user's own"
        )
    if location.startswith("memory:"):
        raise UsageError(
            f"{where}: {location}: expected a place that outlives the command, found its memory; "
            "give a directory or the URL of an object store"
        )
    return location
