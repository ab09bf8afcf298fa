"""A name's log: one file per event, each holding the digest of the one before.

Owns sequence, chain and creation of events. Knows nothing of what an event does to a channel.
"""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.names import is_name
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.records import Event, EventKind, encode_record
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import (
    CHECK,
    is_artifact_id,
    parse_record,
    read_many,
    shown,
)

MAX_ATTEMPTS = 100
"""Races that a writer may lose before it gives up."""
READ_AT_ONCE = 64
MOVES = (EventKind.PROMOTE, EventKind.ROLLBACK)

_EVENT_FILE = re.compile(r"[0-9]{10}\.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Logged:
    event: Event
    sha256: str


class EventLog:
    """The events of one name, oldest first.

    Events never change, so what was read once is kept; a log that became shorter since is refused.
    """

    def __init__(self, storage: RegistryStorage, name: str) -> None:
        self._storage = storage
        self._name = name
        self._known: dict[int, _Logged] = {}

    def last_seq(self) -> int:
        """Number of the newest event, 0 where there is none.

        Raises:
            RefusedError: a number is missing, or events that were there are gone.
        """
        numbers = self.numbers()
        last = len(numbers)
        if numbers != list(range(1, last + 1)):
            missing = next(seq for seq in range(1, last + 2) if seq not in numbers)
            raise self._refuse(
                missing, "expected every event of the log, found none of this number"
            )
        if self._known and max(self._known) > last:
            raise self._refuse(max(self._known), "the log was cut off: this event was there before")
        return last

    def numbers(self) -> list[int]:
        """Numbers of the events that are there, ascending."""
        found = self._storage.list(paths.log(self._name))
        return [int(entry[: paths.SEQ_DIGITS]) for entry in found if _EVENT_FILE.fullmatch(entry)]

    def event(self, seq: int) -> Event:
        """Read one event.

        Raises:
            RefusedError: it is absent, or not an event of this name and number.
        """
        return self._logged(seq).event

    def after(self, seq: int) -> tuple[Event, ...]:
        """Read the events behind number `seq`, oldest first, and check the chain from there on.

        Raises:
            RefusedError: an event is broken, or does not follow the one before.
        """
        return tuple(self._chained(seq + 1, self.last_seq()))

    def last(self) -> Event | None:
        """The newest event, None where there is none."""
        last = self.last_seq()
        return self.event(last) if last else None

    def newest(self, key: str, name: str, kinds: tuple[EventKind, ...]) -> Event | None:
        """Find the newest event of these kinds whose `key` is `name`; reads back as far as it lies.

        Args:
            key: "channel" or "version".
            name: a name, which JSON writes as it is.
            kinds: what counts.
        """
        # Events are canonical, so that most need not be parsed to tell that they are others.
        words = f'"{key}":"{name}"'.encode()
        for first in range(self.last_seq(), 0, -READ_AT_ONCE):
            chunk = list(range(first, max(first - READ_AT_ONCE, 0), -1))
            for seq, data in self._unread(chunk).items():
                if data is None or words in data:
                    self._known[seq] = self._parse(seq, data)
            for event in (self.event(seq) for seq in chunk if seq in self._known):
                if getattr(event, key) == name and event.kind in kinds:
                    return event
        return None

    def fetch(self, numbers: Iterable[int]) -> None:
        """Read events that will be asked for, many at a time.

        Raises:
            RefusedError: one is absent, or not an event of this name and number.
        """
        for seq, data in self._unread(sorted(set(numbers))).items():
            self._known[seq] = self._parse(seq, data)

    def check_link(self, seq: int) -> None:
        """Refuse an event that does not hold the digest of the one before."""
        before = self._logged(seq - 1).sha256 if seq > 1 else None
        found = self._logged(seq).event.previous
        if found != before:
            raise self._refuse(
                seq,
                f"expected the sha256 of the event before, {before}, found {found}: one of the two "
                "was changed",
            )

    def append(self, make: Callable[[int], Event]) -> Event:
        """Create the next event; where another writer was first, ask again.

        Args:
            make: given the number of the newest event, returns the next one without `seq`,
                `previous` and `time`, or raises; called once per attempt.

        Raises:
            RunFailedError: other writers were first every time.
        """
        for _ in range(MAX_ATTEMPTS):
            last = self.last_seq()
            event = self._linked(make(last), last)
            path = paths.event(self._name, event.seq)
            data = encode_record(event, path)
            if self._storage.create(path, data) and self._is_stored(path, data):
                self._known[event.seq] = _Logged(event=event, sha256=_sha256(data))
                return event
        raise RunFailedError(
            f"{shown(self._storage, paths.log(self._name))}: other writers were first "
            f"{MAX_ATTEMPTS} times; run again when they are done"
        )

    def _linked(self, event: Event, last: int) -> Event:
        return replace(
            event,
            seq=last + 1,
            previous=self._logged(last).sha256 if last else None,
            time=utc_text(time.time()),
        )

    def _is_stored(self, path: str, data: bytes) -> bool:
        """Where creation is not atomic, whoever wrote last has won."""
        return self._storage.has_conditional_writes or self._storage.read(path) == data

    def _chained(self, first: int, last: int) -> Iterator[Event]:
        for seq in range(first, last + 1):
            if (seq - first) % READ_AT_ONCE == 0:
                self.fetch(range(seq, min(seq + READ_AT_ONCE, last + 1)))
            self.check_link(seq)
            yield self.event(seq)

    def _logged(self, seq: int) -> _Logged:
        known = self._known.get(seq)
        if known is None:
            known = self._known[seq] = self._read(seq)
        return known

    def _read(self, seq: int) -> _Logged:
        return self._parse(seq, self._storage.read(paths.event(self._name, seq)))

    def _unread(self, numbers: Sequence[int]) -> dict[int, bytes | None]:
        """The bytes of those events that were not read yet."""
        unknown = [seq for seq in numbers if seq not in self._known]
        files = [paths.event(self._name, seq) for seq in unknown]
        return dict(zip(unknown, read_many(self._storage, files), strict=True))

    def _parse(self, seq: int, data: bytes | None) -> _Logged:
        if data is None:
            raise self._refuse(seq, "expected this event, found none")
        path = paths.event(self._name, seq)
        event = parse_record(self._storage, path, data, Event)
        problem = _problem(event, self._name, seq)
        if problem is not None:
            raise self._refuse(seq, problem)
        return _Logged(event=event, sha256=_sha256(data))

    def _refuse(self, seq: int, problem: str) -> RefusedError:
        where = shown(self._storage, paths.event(self._name, seq))
        return RefusedError(f"{where}: {problem}; {CHECK}")


def utc_text(seconds: float) -> str:
    """A time of events, from seconds since the epoch."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _problem(event: Event, name: str, seq: int) -> str | None:
    """What makes a well-typed event no event of this place."""
    is_move = event.kind in MOVES
    checks = (
        (event.name == name, f"expected an event of {name}, found one of {event.name!a}"),
        (event.seq == seq, f"expected event {seq}, found {event.seq}"),
        (is_name(event.version), f"expected a version, found {event.version!a}"),
        (is_artifact_id(event.id), f"expected an artifact id, found {event.id!a}"),
        ((event.channel is not None) == is_move, f"a channel does not fit a {event.kind.value}"),
        (event.channel is None or is_name(event.channel), "expected a channel's name"),
    )
    return next((problem for holds, problem in checks if not holds), None)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
