"""Checks one name: its log, versions, signatures and channels against each other.

Knows nothing of blobs.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.names import is_name
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.channels import channel_state
from infinity_v3.artifacts.registry.event_signature import (
    actor_problem,
    decode_signature,
    is_event_trusted,
)
from infinity_v3.artifacts.registry.findings import Findings
from infinity_v3.artifacts.registry.log import MOVES, EventLog
from infinity_v3.artifacts.registry.records import Event, EventKind, VersionRecord
from infinity_v3.artifacts.registry.signing import SignatureVerifier, version_message
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import read_record
from infinity_v3.artifacts.registry.version_signatures import read_signatures
from infinity_v3.artifacts.registry.versions import check_version, live_pushes, record_of

_KEY_ID = re.compile(r"[0-9a-f]{16}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NameContents:
    """What a name holds as far as it could be read."""

    events: tuple[Event, ...]
    versions: Mapping[str, VersionRecord]
    num_channels: int


class NameCheck:
    """One pass over one name."""

    def __init__(
        self,
        storage: RegistryStorage,
        name: str,
        findings: Findings,
        verifier: SignatureVerifier | None,
    ) -> None:
        self._storage = storage
        self._name = name
        self._findings = findings
        self._verifier = verifier
        self._log = EventLog(storage, name)

    def run(self) -> NameContents:
        """Check everything; what is wrong goes to the findings."""
        events = self._check_log()
        live = live_pushes(events)
        versions = self._check_versions(events, live)
        for version in sorted(versions):
            self._check_signatures(version, versions[version])
        self._note_leftovers(live)
        return NameContents(
            events=events, versions=versions, num_channels=self._check_channels(events, live)
        )

    def _check_log(self) -> tuple[Event, ...]:
        folder = paths.log(self._name)
        self._check_entries(folder)
        with self._findings.checking(folder):
            self._log.last_seq()
        numbers = self._numbers()
        if not numbers and self._has_records():
            self._findings.damaged(folder, "expected at least one event, found none")
        events: list[Event] = []
        for seq in numbers:
            with self._findings.checking(paths.event(self._name, seq)):
                events.append(self._log.event(seq))
                self._log.check_link(seq)
        for event in events:
            self._check_event(event)
        return tuple(events)

    def _has_records(self) -> bool:
        """Empty folders are what a first push leaves that was killed before its event."""
        folders = (paths.versions(self._name), paths.channels(self._name))
        return any(self._listed(folder) for folder in folders)

    def _listed(self, folder: str) -> tuple[str, ...]:
        return self._findings.listed(self._storage, folder)

    def _named(self, folder: str) -> tuple[str, ...]:
        """Stems of the JSON files in a folder."""
        stems = [entry[:-5] for entry in self._listed(folder) if entry.endswith(".json")]
        return tuple(stem for stem in stems if is_name(stem))

    def _numbers(self) -> list[int]:
        numbers: list[int] = []
        with self._findings.checking(paths.log(self._name)):
            numbers.extend(self._log.numbers())
        return numbers

    def _check_entries(self, folder: str) -> None:
        known = {paths.event(self._name, seq) for seq in self._numbers()}
        for entry in self._listed(folder):
            if f"{folder}/{entry}" not in known:
                self._findings.damaged(f"{folder}/{entry}", "expected events only")

    def _check_event(self, event: Event) -> None:
        path = paths.event(self._name, event.seq)
        problem = None if event.channel is None else actor_problem(event)
        if problem is not None:
            self._findings.damaged(path, problem)
        elif event.signature is None:
            return
        elif decode_signature(event.signature.signature) is None:
            self._findings.damaged(path, "expected a signature of 64 bytes in base64")
        elif self._is_forged(event, event.signature.key_id):
            problem = f"the signature of {event.signature.key_id} does not fit the event"
            self._findings.damaged(path, problem)

    def _is_forged(self, event: Event, key_id: str) -> bool:
        if self._verifier is None or key_id not in self._verifier.key_ids:
            return False
        return not is_event_trusted(event, self._verifier)

    def _check_versions(
        self, events: tuple[Event, ...], live: Mapping[str, Event]
    ) -> dict[str, VersionRecord]:
        found: dict[str, VersionRecord] = {}
        last = events[-1] if events else None
        for version in self._named(paths.versions(self._name)):
            path = paths.version(self._name, version)
            with self._findings.checking(path):
                record = read_record(self._storage, path, VersionRecord)
                if record is not None and _is_retired(events, version):
                    self._findings.note(path, "retired; the next writer or `gc` removes it")
                elif record is not None:
                    check_version(self._storage, self._log, self._name, version, record)
                    found[version] = record
        for version, event in live.items():
            path = paths.version(self._name, version)
            if not self._is_absent(path):
                continue
            if event is last:
                self._findings.note(path, "its push was interrupted; the next writer completes it")
                found[version] = record_of(event)
            else:
                self._findings.damaged(path, f"event {event.seq} pushed it, but it is absent")
        return found

    def _is_absent(self, path: str) -> bool:
        sizes: list[int | None] = []
        with self._findings.checking(path):
            sizes.append(self._storage.size(path))
        return None in sizes

    def _check_signatures(self, version: str, record: VersionRecord) -> None:
        folder = paths.signatures(self._name, version)
        for key_id in self._listed(folder):
            if _KEY_ID.fullmatch(key_id) is None:
                self._findings.damaged(f"{folder}/{key_id}", "expected 16 hex digits as its name")
        with self._findings.checking(folder):
            signatures = read_signatures(self._storage, self._name, version)
            message = version_message(self._name, version, record.id)
            for key_id, signature in signatures.items():
                if self._verifier is None or key_id not in self._verifier.key_ids:
                    continue
                if not self._verifier.verify(key_id, signature, message):
                    path = paths.signature(self._name, version, key_id)
                    self._findings.damaged(path, f"does not sign {version} as {record.id}")

    def _note_leftovers(self, live: Mapping[str, Event]) -> None:
        """Signatures of versions that are gone."""
        for entry in self._listed(paths.versions(self._name)):
            path = f"{paths.versions(self._name)}/{entry}"
            if entry.endswith(".sig"):
                if entry.removesuffix(".sig") not in live and self._listed(path):
                    self._findings.note(path, "signatures of no version; `gc` removes them")
            elif not entry.endswith(".json"):
                self._findings.damaged(path, "expected versions and signatures only")

    def _check_channels(self, events: tuple[Event, ...], live: Mapping[str, Event]) -> int:
        moved = {event.channel for event in events if event.channel is not None}
        channels = {*self._named(paths.channels(self._name)), *moved}
        for channel in sorted(channels):
            with self._findings.checking(paths.channel(self._name, channel)):
                self._check_channel(channel, events, live)
        return len(channels)

    def _check_channel(
        self, channel: str, events: tuple[Event, ...], live: Mapping[str, Event]
    ) -> None:
        path = paths.channel(self._name, channel)
        state = channel_state(self._storage, self._log, self._name, channel)
        if state.event is None:
            raise RefusedError("no event of the log moved this channel")
        if state.is_interrupted:
            if self._storage.size(path) is None and state.event is not events[-1]:
                raise RefusedError(
                    f"event {state.event.seq} moved it, but it is absent; promote again"
                )
            problem = f"lags behind event {state.event.seq}; the log counts, the next move mends it"
            self._findings.note(path, problem)
        pushed = live.get(state.event.version)
        if pushed is None or pushed.id != state.event.id:
            raise RefusedError(f"points to version {state.event.version}, which is not there")


def _is_retired(events: tuple[Event, ...], version: str) -> bool:
    uses = [event for event in events if event.version == version and event.kind not in MOVES]
    return bool(uses) and uses[-1].kind is EventKind.RETIRE
