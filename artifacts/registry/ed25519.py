"""Ed25519 keys from PEM files, as openssl makes them. The only file that knows `cryptography`.

Import it where a key was given, as loading the library takes time.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed

KEY_ID_DIGITS = 16
MAX_KEY_BYTES = 64 << 10
_MAKE = "`openssl genpkey -algorithm ed25519 -out private.pem` makes one"
_MAKE_PUBLIC = "`openssl pkey -in private.pem -pubout -out public.pem` makes one"


class Ed25519Signer:
    """A private key, as `Signer`."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self._key_id = key_id(key.public_key())

    @property
    def key_id(self) -> str:
        return self._key_id

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


class Ed25519Verifier:
    """Trusted public keys, as `SignatureVerifier`."""

    def __init__(self, keys: Iterable[Ed25519PublicKey]) -> None:
        self._keys = {key_id(key): key for key in keys}

    @property
    def key_ids(self) -> tuple[str, ...]:
        return tuple(sorted(self._keys))

    def verify(self, key_id: str, signature: bytes, message: bytes) -> bool:
        key = self._keys.get(key_id)
        if key is None:
            return False
        try:
            key.verify(signature, message)
        except InvalidSignature:
            return False
        return True


def key_id(key: Ed25519PublicKey) -> str:
    """First 16 hex digits of the sha256 of the 32 raw bytes of a public key."""
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return hashlib.sha256(raw).hexdigest()[:KEY_ID_DIGITS]


def read_signer(path: Path) -> Ed25519Signer:
    """Read a private key.

    Raises:
        UsageError: no such file, or not an unencrypted Ed25519 private key in PEM.
        RunFailedError: the file cannot be read.
    """
    try:
        key = load_pem_private_key(_read(path), password=None)
    except TypeError:
        raise UsageError(
            f"{path}: expected a private key without a passphrase, found an encrypted one; "
            "decrypt it with `openssl pkey`"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise UsageError(
            f"{path}: expected an Ed25519 private key in PEM, found something else; {_MAKE}"
        ) from None
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageError(
            f"{path}: expected an Ed25519 private key, found one of another kind; {_MAKE}"
        )
    return Ed25519Signer(key)


def read_verifier(files: Iterable[Path]) -> Ed25519Verifier:
    """Read trusted public keys, one per file.

    Raises:
        UsageError: a file is absent or holds no Ed25519 public key in PEM.
        RunFailedError: a file cannot be read.
    """
    return parse_verifier((str(path), _read(path)) for path in files)


def parse_verifier(contents: Iterable[tuple[str, bytes]]) -> Ed25519Verifier:
    """Read trusted public keys from pairs of what messages call a file and its bytes.

    Raises:
        UsageError: one of them is no Ed25519 public key in PEM.
    """
    return Ed25519Verifier([_parse_public(name, data) for name, data in contents])


def _parse_public(path: str, data: bytes) -> Ed25519PublicKey:
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        found = "a private key" if b"PRIVATE KEY-----" in data else "something else"
        raise UsageError(
            f"{path}: expected an Ed25519 public key in PEM, found {found}; {_MAKE_PUBLIC}"
        ) from None
    if not isinstance(key, Ed25519PublicKey):
        raise UsageError(
            f"{path}: expected an Ed25519 public key, found one of another kind; {_MAKE_PUBLIC}"
        )
    return key


def _read(path: Path) -> bytes:
    with os_errors_as_run_failed("read", path):
        try:
            with path.open("rb") as file:
                return file.read(MAX_KEY_BYTES)
        except FileNotFoundError:
            raise UsageError(f"{path}: no such key file; give the path of a PEM file") from None
