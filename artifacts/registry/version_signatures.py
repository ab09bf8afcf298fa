"""Detached signatures of versions: one file of 64 bytes per key. Knows nothing of keys."""

from collections.abc import Mapping

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.event_signature import SIGNATURE_BYTES
from infinity_v3.artifacts.registry.signing import SignatureVerifier, Signer, version_message
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import CHECK, names_in, shown

Signatures = Mapping[str, bytes]
"""Key id to 64 bytes."""


def read_signatures(storage: RegistryStorage, name: str, version: str) -> Signatures:
    """Read the signatures of a version.

    Raises:
        RefusedError: one of them is not 64 bytes long.
    """
    found: dict[str, bytes] = {}
    for key_id in names_in(storage, paths.signatures(name, version)):
        path = paths.signature(name, version, key_id)
        data = storage.read(path)
        if data is None:
            continue  # removed meanwhile
        if len(data) != SIGNATURE_BYTES:
            raise RefusedError(
                f"{shown(storage, path)}: expected a signature of {SIGNATURE_BYTES} bytes, found "
                f"{len(data)}; {CHECK}"
            )
        found[key_id] = data
    return found


def write_signature(
    storage: RegistryStorage, name: str, version: str, identity: str, signer: Signer
) -> bool:
    """Sign a version; what the same key signed before is replaced.

    Returns:
        Whether this signature was not there before.
    """
    path = paths.signature(name, version, signer.key_id)
    signature = signer.sign(version_message(name, version, identity))
    if storage.read(path) == signature:
        return False
    storage.replace(path, signature)
    return True


def trusted_key(signatures: Signatures, message: bytes, verifier: SignatureVerifier) -> str | None:
    """The first trusted key that signed the message, None where none did."""
    trusted = (
        key_id
        for key_id, signature in sorted(signatures.items())
        if key_id in verifier.key_ids and verifier.verify(key_id, signature, message)
    )
    return next(trusted, None)
