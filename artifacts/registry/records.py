"""The small documents of a registry as frozen dataclasses, registry format version 1.

Owns names, types and canonical bytes of registry.json, versions, channels and events. Does no I/O.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TypeVar

from infinity_v3.artifacts.typed_json import (
    Location,
    canonical_bytes,
    check_canonical,
    from_json,
    parse,
    to_json,
)

FORMAT = "infinity-registry"
FORMAT_VERSION = 1
MAX_RECORD_BYTES = 1 << 20

RecordT = TypeVar("RecordT")


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryMarker:
    """The whole of registry.json."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionRecord:
    """What a version is; created once, never rewritten.

    Attributes:
        id: artifact id, `sha256:<64 hex>`.
        profile, build: sha256 of the blobs of profile.json and build.json; None = it had none.
        event: sequence number of the push event that says the same.
    """

    id: str
    profile: str | None
    build: str | None
    event: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelRecord:
    """Where a channel points; valid only if it equals the last event of that channel."""

    id: str
    version: str
    event: int


class EventKind(str, Enum):
    """What happened to a name."""

    PUSH = "push"
    PROMOTE = "promote"
    ROLLBACK = "rollback"
    RETIRE = "retire"


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFigure:
    """One line of the table that a reviewer sees.

    Attributes:
        gate: key of the policy, e.g. "min-cosine".
        subject: what was measured, e.g. a target's name.
        current: the figure of the artifact now in the channel; None = nothing to compare with.
        candidate: the figure of the artifact to be promoted; None = it could not be had.
        bound: what the policy asks for, in words, e.g. ">= 0.999".
        passed: the verdict.
        detail: one sentence of more, e.g. a confidence interval; "" = nothing to add.
    """

    gate: str
    subject: str
    current: str | None
    candidate: str | None
    bound: str
    passed: bool
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventSignature:
    """Ed25519 over `signing.channel_message`; `signature` is base64 of 64 bytes."""

    key_id: str
    signature: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One line of a name's log.

    Attributes:
        seq: 1 for the first event of a name; never a gap.
        previous: sha256 of the bytes of the event before; None for the first.
        time: UTC, `YYYY-MM-DDTHH:MM:SSZ`.
        actor: id of the signing key, else `unverified:<user>`.
        version, id: what the event is about; of a promotion or rollback, what the channel now
            points to.
        channel: None for push and retire.
        replaced_version, replaced_id: what the channel pointed to before; None = nothing.
        policy: sha256 of the blob with the policy in force; None for push and retire.
        is_ungated: gates were skipped by --no-gates.
        figures: what the gates found.
    """

    seq: int
    previous: str | None
    time: str
    kind: EventKind
    name: str
    actor: str
    version: str
    id: str
    channel: str | None = None
    replaced_version: str | None = None
    replaced_id: str | None = None
    policy: str | None = None
    is_ungated: bool = False
    figures: tuple[GateFigure, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    signature: EventSignature | None = None

    def unsigned(self) -> "Event":
        """The same event before it was signed."""
        return replace(self, signature=None)


def encode_record(record: object, path: str) -> bytes:
    """Serialise any record to its canonical bytes; `path` stands in messages."""
    return canonical_bytes(to_json(record), Location(path))


def decode_record(data: bytes, cls: type[RecordT], path: str) -> RecordT:
    """Read a record strictly.

    Raises:
        RefusedError: names the file and the key at fault; other bytes than canonical ones.
    """
    at = Location(path)
    document = parse(data, at)
    record = from_json(document, cls, at)
    check_canonical(data, document, at)
    return record
