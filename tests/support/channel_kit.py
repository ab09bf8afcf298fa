"""A registry in a directory, with artifacts to push and channels to move, as a release would.

Knows nothing of servers.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)

from infinity_v3.artifacts.codec import decode_manifest, encode_manifest
from infinity_v3.artifacts.layout import MANIFEST_FILE
from infinity_v3.artifacts.registry.ed25519 import Ed25519Signer
from infinity_v3.artifacts.registry.marker import create_registry
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.open_registry import open_registry
from infinity_v3.artifacts.registry.open_storage import open_storage
from infinity_v3.artifacts.registry.records import Event, EventKind
from infinity_v3.artifacts.registry.reference import Reference
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.artifacts.store import open_artifact
from tampering import copy_artifact

CHANNEL = "prod"


@dataclass(frozen=True, kw_only=True)
class LocalRegistry:
    """Every call opens the registry anew, as another process would."""

    root: Path
    signer: Signer | None = None

    @classmethod
    def make(cls, root: Path, signer: Signer | None = None) -> "LocalRegistry":
        create_registry(open_storage(str(root)), "[channels.prod]\n")
        return cls(root=root, signer=signer)

    @property
    def location(self) -> str:
        return str(self.root)

    def push(self, artifact: Path, version: str) -> str:
        """Push an artifact; its id."""
        report = open_registry(self.location).push(
            open_artifact(artifact), version, actor="unverified:test", signer=self.signer
        )
        return report.id

    def move(self, name: str, version: str, channel: str = CHANNEL) -> Event:
        """Let a channel point to a version."""
        registry = open_registry(self.location)
        resolved = registry.resolve(Reference(name=name, version=version))
        return registry.move_channel(
            ChannelMove(
                name=name,
                channel=channel,
                version=version,
                id=resolved.id,
                kind=EventKind.PROMOTE,
                actor="unverified:test",
                signer=self.signer,
            )
        )

    def blob(self, sha256: str) -> Path:
        return self.root / "blobs" / "sha256" / sha256


def renamed(artifact: Path, copy: Path, name: str) -> Path:
    """Copy an artifact under another name, so that two of them are versions of one model."""
    copy_artifact(artifact, copy)
    manifest = decode_manifest((copy / MANIFEST_FILE).read_bytes())
    (copy / MANIFEST_FILE).write_bytes(encode_manifest(replace(manifest, name=name)))
    return copy


@dataclass(frozen=True, kw_only=True)
class KeyFiles:
    """A key pair, as PEM files and ready to sign."""

    private: Path
    public: Path
    signer: Signer


def make_keys(folder: Path) -> KeyFiles:
    key = Ed25519PrivateKey.generate()
    private, public = folder / "private.pem", folder / "public.pem"
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public.write_bytes(
        key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return KeyFiles(private=private, public=public, signer=Ed25519Signer(key))
