"""The newest event of each channel that this user has accepted, so that an older one is refused.

A file of mode 0600 in a directory of the user's own. Knows nothing of signatures.
"""

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.registry.records import Event, decode_record, encode_record

SEEN_FILE = "seen-events.json"
MAX_SEEN_BYTES = 8 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """The whole of the file: location, then `name:channel`, then the number of an event."""

    registries: Mapping[str, Mapping[str, int]] = field(default_factory=dict)


class SeenEvents:
    """Numbers of events by registry, name and channel. Usable by several processes at a time."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / SEEN_FILE

    def check(self, location: str, event: Event) -> None:
        """Remember the last event of a channel, unless a newer one was seen before.

        Raises:
            RefusedError: a newer one was seen: the registry or a part of it was turned back.
            RunFailedError: the file cannot be read or written.
        """
        key = f"{event.name}:{event.channel}"
        with os_errors_as_run_failed("write", self._path), self._locked():
            registries = self._read().registries
            before = registries.get(location, {}).get(key, 0)
            if event.seq < before:
                raise RefusedError(
                    f"{location}: {key} is at event {event.seq}, but event {before} was seen "
                    "before: the registry was turned back to an older state; if that was meant, "
                    f"remove {self._path}"
                )
            if event.seq > before:
                channels = {**registries.get(location, {}), key: event.seq}
                self._write(_Seen(registries={**registries, location: channels}))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(self._directory / f".{SEEN_FILE}.lock", flags, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)

    def _read(self) -> _Seen:
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return _Seen()
        with os.fdopen(descriptor, "rb") as file:
            return decode_record(file.read(MAX_SEEN_BYTES), _Seen, str(self._path))

    def _write(self, seen: _Seen) -> None:
        temporary = self._directory / f".{SEEN_FILE}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
        with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
            file.write(encode_record(seen, str(self._path)))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)
