"""DIR.sig: the signatures of an artifact directory, beside it.

Owns the format of that file. Knows nothing of keys and of registries.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.names import is_name
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.publish import sync_paths
from infinity_v3.artifacts.registry.event_signature import decode_signature, encode_signature
from infinity_v3.artifacts.registry.records import (
    MAX_RECORD_BYTES,
    EventSignature,
    decode_record,
    encode_record,
)
from infinity_v3.artifacts.registry.signing import SignatureVerifier, Signer, version_message
from infinity_v3.artifacts.registry.version_signatures import trusted_key
from infinity_v3.artifacts.store import Artifact

FORMAT = "infinity-signature"
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSignature:
    """The whole of DIR.sig; `signatures` are sorted by key id."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    name: str
    version: str
    id: str
    signatures: tuple[EventSignature, ...]

    @staticmethod
    def of(
        name: str, version: str, identity: str, signatures: Mapping[str, bytes]
    ) -> "LocalSignature":
        """Put together what was signed and the signatures by key id."""
        return LocalSignature(
            name=name,
            version=version,
            id=identity,
            signatures=tuple(
                EventSignature(key_id=key_id, signature=encode_signature(signature))
                for key_id, signature in sorted(signatures.items())
            ),
        )

    def by_key(self) -> dict[str, bytes]:
        """The well-formed signatures by key id."""
        found = {entry.key_id: decode_signature(entry.signature) for entry in self.signatures}
        return {key_id: signature for key_id, signature in found.items() if signature is not None}

    def signed_by(self, signer: Signer) -> "LocalSignature":
        """The same with one key's signature more."""
        message = version_message(self.name, self.version, self.id)
        signatures = {**self.by_key(), signer.key_id: signer.sign(message)}
        return LocalSignature.of(self.name, self.version, self.id, signatures)


def signature_path(directory: Path) -> Path:
    """Where the signatures of an artifact directory lie."""
    return directory.parent / f"{directory.name}.sig"


def read_local_signature(directory: Path) -> LocalSignature | None:
    """Read DIR.sig strictly, None where there is none.

    Raises:
        RefusedError: it breaks the format.
        RunFailedError: it cannot be read.
    """
    path = signature_path(directory)
    with os_errors_as_run_failed("read", path):
        try:
            with path.open("rb") as file:
                data = file.read(MAX_RECORD_BYTES + 1)
        except FileNotFoundError:
            return None
    if len(data) > MAX_RECORD_BYTES:
        raise RefusedError(f"{path}: expected at most {MAX_RECORD_BYTES} bytes")
    found = decode_record(data, LocalSignature, str(path))
    if (found.format, found.format_version) != (FORMAT, FORMAT_VERSION):
        raise RefusedError(
            f"{path}: expected {FORMAT} {FORMAT_VERSION}, found {found.format} "
            f"{found.format_version}"
        )
    if not (is_name(found.name) and is_name(found.version)):
        raise RefusedError(f"{path}: expected names, found {found.name!a} and {found.version!a}")
    return found


def write_local_signature(directory: Path, signature: LocalSignature) -> bool:
    """Replace DIR.sig in one step; always True, for callers that undo it."""
    path = signature_path(directory)
    temporary = path.parent / f".{path.name}.{secrets.token_hex(8)}"
    with os_errors_as_run_failed("write", path):
        try:
            temporary.write_bytes(encode_record(signature, str(path)))
            sync_paths([temporary])
            temporary.replace(path)
            sync_paths([path.parent])
        finally:
            temporary.unlink(missing_ok=True)
    return True


def check_local_signature(artifact: Artifact, verifier: SignatureVerifier) -> LocalSignature:
    """Refuse an artifact directory that no trusted key signed.

    Raises:
        RefusedError: DIR.sig is absent, belongs to another artifact, or holds no signature of a
            trusted key.
    """
    path = signature_path(artifact.path)
    found = read_local_signature(artifact.path)
    if found is None:
        raise RefusedError(
            f"{artifact.path}: expected signatures in {path}, found no such file; sign the "
            "artifact, or pull a signed version"
        )
    if found.id != artifact.artifact_id or found.name != artifact.manifest.name:
        raise RefusedError(
            f"{path}: signs {found.name} {found.id}, but the directory holds "
            f"{artifact.manifest.name} {artifact.artifact_id}"
        )
    message = version_message(found.name, found.version, found.id)
    if trusted_key(found.by_key(), message, verifier) is None:
        raise RefusedError(
            f"{path}: expected a signature by {' or '.join(verifier.key_ids)}, found "
            f"{', '.join(sorted(found.by_key())) or 'none'} and none of them valid"
        )
    return found
