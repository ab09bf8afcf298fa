"""Trusted keys: those that the policy names, else those of the command line.

Knows nothing of what they signed.
"""

from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.paths import POLICY
from infinity_v3.artifacts.registry.signing import SignatureVerifier
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.typed_json import Location
from infinity_v3.compiler.gates.policy import CHANNELS, SignatureRule
from infinity_v3.compiler.gates.policy_files import read_policy_file
from infinity_v3.compiler.gates.signature_gate import REQUIRE_SIGNATURE


def read_trusted_keys(
    storage: RegistryStorage, rule: SignatureRule, given: tuple[Path, ...], channel: str
) -> SignatureVerifier:
    """Read the public keys that a channel trusts.

    Args:
        storage: of the registry.
        rule: the policy's; the files that it names are the only ones trusted.
        given: files of the command line, trusted where the policy names none.
        channel: stands in messages.

    Raises:
        UsageError: no key is named, or a file holds none.
        RefusedError: a file that the policy names is absent.
        RunFailedError: a file cannot be read.
    """
    # Loading the library takes time, which promotions without signatures need not wait for.
    from infinity_v3.artifacts.registry.ed25519 import parse_verifier, read_verifier

    at = Location(POLICY).key(CHANNELS).key(channel).key(REQUIRE_SIGNATURE)
    if rule.key_files:
        return parse_verifier((path, _read(storage, path, at)) for path in rule.key_files)
    if not given:
        raise UsageError(
            f"{POLICY}: {at.path}: expected public keys to check signatures with, found none; "
            "name their files there, or give --key PUBLIC.pem"
        )
    return read_verifier(given)


def _read(storage: RegistryStorage, path: str, at: Location) -> bytes:
    data = read_policy_file(storage, path)
    if data is None:
        raise at.refuse(f"expected the public key {path}, found no such file")
    return data
