"""What is signed, and what checks it. Knows nothing of a library: see `ed25519`."""

from typing import Protocol

MAX_SIGNATURE_BYTES = 4096


def version_message(name: str, version: str, artifact_id: str) -> bytes:
    """What a detached signature of a version covers."""
    return f"infinity-artifact-v1\n{name}\n{version}\n{artifact_id}\n".encode()


def channel_message(name: str, channel: str, version: str, artifact_id: str, seq: int) -> bytes:
    """What an event's signature covers; `seq` keeps an old one from being replayed."""
    return f"infinity-channel-v1\n{name}\n{channel}\n{version}\n{artifact_id}\n{seq}\n".encode()


class SignatureVerifier(Protocol):
    """One or more trusted public keys."""

    @property
    def key_ids(self) -> tuple[str, ...]:
        """Ids of the keys that are trusted."""
        ...

    def verify(self, key_id: str, signature: bytes, message: bytes) -> bool:
        """Tell whether a trusted key of that id made the signature (64 bytes) of the message."""
        ...


class Signer(Protocol):
    """One private key."""

    @property
    def key_id(self) -> str:
        """First 16 hex digits of the sha256 of the raw public key."""
        ...

    def sign(self, message: bytes) -> bytes:
        """Return the 64 bytes of an Ed25519 signature (RFC 8032)."""
        ...
