"""The one object that others talk to when they use a registry. Delegates, decides nothing."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.channels import (
    ChannelState,
    channel_names,
    channel_state,
    list_channels,
)
from infinity_v3.artifacts.registry.fsck import FsckOrder, FsckReport, fsck
from infinity_v3.artifacts.registry.gc import GcReport, collect_garbage
from infinity_v3.artifacts.registry.leases import gc_lease, push_lease
from infinity_v3.artifacts.registry.log import EventLog
from infinity_v3.artifacts.registry.moves import (
    ChannelMove,
    check_name_of,
    mend_channel,
    move_channel,
)
from infinity_v3.artifacts.registry.pull import pull
from infinity_v3.artifacts.registry.push import Advance, PushOrder, PushReport, push
from infinity_v3.artifacts.registry.records import Event, VersionRecord
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.resolve import Resolved, resolve
from infinity_v3.artifacts.registry.retire import retire
from infinity_v3.artifacts.registry.rollback import Place, places_before
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.artifacts.registry.signing import SignatureVerifier, Signer
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import artifact_names, read_document, read_manifest
from infinity_v3.artifacts.registry.trust import check_trust
from infinity_v3.artifacts.registry.version_signatures import (
    Signatures,
    read_signatures,
    write_signature,
)
from infinity_v3.artifacts.registry.versions import list_versions
from infinity_v3.artifacts.store import Artifact


def _nothing(_: int) -> None:
    pass


class Registry:
    """A registry in a place that holds one; see `open_registry`.

    Usable from several threads. Logs are kept once read, so that a poll of a channel reads what is
    new only.

    Args:
        storage: the place.
        verifier: what is pulled must be signed by one of its keys; None = signatures are not asked
            for.
        seen: remembers the newest events, where signatures are asked for.
    """

    def __init__(
        self,
        storage: RegistryStorage,
        *,
        verifier: SignatureVerifier | None = None,
        seen: SeenEvents | None = None,
    ) -> None:
        self.storage = storage
        self._verifier = verifier
        self._seen = seen
        self._logs: dict[str, EventLog] = {}

    @property
    def location(self) -> str:
        """The directory or URL, as shown to users."""
        return self.storage.location

    def resolve(self, reference: Reference) -> Resolved:
        """Find what a reference stands for; see `resolve.resolve`."""
        return resolve(self.storage, self._log(reference.name), reference)

    def manifest(self, artifact_id: str) -> Manifest:
        """Read a manifest strictly; RefusedError where it is not the one of the id."""
        return read_manifest(self.storage, artifact_id)

    def document(self, sha256: str) -> bytes:
        """Read a small blob; RefusedError where its content is not the one of the digest."""
        return read_document(self.storage, sha256)

    def version_record(self, name: str, version: str) -> VersionRecord:
        """Read a version, checked against its push event; RefusedError where there is none."""
        return self.resolve(Reference(name=name, version=version)).record

    def push(
        self,
        artifact: Artifact,
        version: str,
        *,
        actor: str,
        signer: Signer | None = None,
        advance: Advance = _nothing,
    ) -> PushReport:
        """Send an artifact and name it by a version; see `push.push`."""
        order = PushOrder(artifact=artifact, version=version, actor=actor, signer=signer)
        with push_lease(self.storage):
            return push(self.storage, self._log(artifact.manifest.name), order, advance)

    def pull(self, resolved: Resolved, out: Path, *, advance: Advance = _nothing) -> Artifact:
        """Write an artifact to a new directory, trusted and whole; see `pull.pull`."""
        self.check_trust(resolved)
        return pull(self.storage, resolved, out, advance)

    def check_trust(self, resolved: Resolved) -> None:
        """Refuse what the verifier, where there is one, does not trust; see `trust.check_trust`."""
        if self._verifier is not None:
            check_trust(self.storage, resolved, self._verifier, self._seen)

    def move_channel(self, order: ChannelMove) -> Event:
        """Let a channel point to a version, its gates passed; see `moves.move_channel`."""
        return move_channel(self.storage, self._log(order.name), order)

    def mend_channel(self, name: str, channel: str) -> None:
        """Write the file of a channel that was lost or lags behind; see `moves.mend_channel`."""
        mend_channel(self.storage, self._log(name), name, channel)

    def retire(self, name: str, version: str, *, actor: str) -> Event:
        """Take a version back; see `retire.retire`."""
        return retire(self.storage, self._log(name), name, version, actor)

    def sign(self, resolved: Resolved, signer: Signer) -> None:
        """Add a key's signature to a version."""
        write_signature(self.storage, resolved.name, resolved.version, resolved.id, signer)

    def signatures(self, name: str, version: str) -> Signatures:
        """Read the signatures of a version by key id; nothing says that they are valid."""
        return read_signatures(self.storage, name, version)

    def names(self) -> tuple[str, ...]:
        """All names, sorted; stray files between them are left out."""
        return artifact_names(self.storage)

    def versions(self, name: str) -> dict[str, VersionRecord]:
        """The versions of a name that are not retired, oldest first."""
        return list_versions(self.storage, self._log(name), name)

    def channel(self, name: str, channel: str) -> ChannelState:
        """Where a channel points now; its event is None where it never pointed anywhere."""
        return channel_state(self.storage, self._log(name), name, channel)

    def channels(self, name: str) -> tuple[ChannelState, ...]:
        """All channels of a name that point somewhere."""
        return list_channels(self.storage, self._log(name), name)

    def channel_names(self, name: str) -> tuple[str, ...]:
        """The channels of a name, unread: a damaged one is among them."""
        return channel_names(self.storage, self._log(name), name)

    def event(self, name: str, seq: int) -> Event:
        """One event of a name's log."""
        return self._log(name).event(seq)

    def last_event(self, name: str) -> Event | None:
        """The newest event of a name, None where there is no such name."""
        return self._log(name).last()

    def events(self, name: str) -> Iterator[Event]:
        """All events of a name, oldest first, their chain checked."""
        return iter(self._log(name).after(0))

    def places_before(self, name: str, channel: str) -> tuple[Place, ...]:
        """Versions and ids that a channel can go back to, the nearest last, retired ones left out.

        Raises:
            RefusedError: the log is broken.
        """
        kept = self.versions(name)
        before = places_before(self.events(name), channel)
        return tuple(place for place in before if place[0] in kept)

    def policy_text(self) -> bytes:
        """The bytes of policy.toml.

        Raises:
            RefusedError: the registry has none.
        """
        data = self.storage.read(paths.POLICY)
        if data is None:
            raise RefusedError(
                f"{self.location}: expected {paths.POLICY}, found none; `infinity-compile registry "
                "init` of an empty place writes one to start from"
            )
        return data

    def store_document(self, data: bytes) -> str:
        """Keep a small file as a blob, such as the policy in force; its sha256."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.storage.create(paths.blob(sha256), data)
        return sha256

    def collect_garbage(self, *, grace_s: float, is_dry_run: bool) -> GcReport:
        """Remove what nothing needs any more; see `gc.collect_garbage`."""
        if is_dry_run:
            return collect_garbage(self.storage, grace_s=grace_s, is_dry_run=True)
        with gc_lease(self.storage):
            return collect_garbage(self.storage, grace_s=grace_s, is_dry_run=False)

    def fsck(self, order: FsckOrder) -> FsckReport:
        """Check everything; see `fsck.fsck`."""
        return fsck(self.storage, order)

    def _log(self, name: str) -> EventLog:
        check_name_of("name", name)
        return self._logs.setdefault(name, EventLog(self.storage, name))
