"""Keys as openssl makes them, signatures that openssl accepts, and memory of what was seen."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.ed25519 import (
    Ed25519Signer,
    Ed25519Verifier,
    read_signer,
    read_verifier,
)
from infinity_v3.artifacts.registry.local_signature import (
    LocalSignature,
    check_local_signature,
    signature_path,
    write_local_signature,
)
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.seen_events import SEEN_FILE, SeenEvents
from infinity_v3.artifacts.registry.signing import version_message
from registries import NAME, fake, new_key, new_registry, promote, push, resolve

# RFC 8032, section 7.1, test 2.
SECRET = "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb"
SIGNATURE = (
    "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
)


def openssl(*arguments: str | Path) -> bytes:
    result = subprocess.run(
        ["openssl", *map(str, arguments)], capture_output=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture
def key_files(tmp_path: Path) -> tuple[Path, Path]:
    """A private and a public key, made by openssl."""
    private, public = tmp_path / "private.pem", tmp_path / "public.pem"
    openssl("genpkey", "-algorithm", "ed25519", "-out", private)
    openssl("pkey", "-in", private, "-pubout", "-out", public)
    return private, public


def test_signatures_are_those_of_the_standard() -> None:
    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(SECRET))
    signer, verifier = Ed25519Signer(key), Ed25519Verifier([key.public_key()])
    assert signer.sign(b"\x72").hex() == SIGNATURE
    assert verifier.verify(signer.key_id, bytes.fromhex(SIGNATURE), b"\x72")
    assert not verifier.verify(signer.key_id, bytes.fromhex(SIGNATURE), b"\x73")
    assert not verifier.verify("0" * 16, bytes.fromhex(SIGNATURE), b"\x72")


def test_a_key_is_called_by_the_digest_of_its_public_half(key_files: tuple[Path, Path]) -> None:
    private, public = key_files
    raw = openssl("pkey", "-pubin", "-in", public, "-outform", "DER")[-32:]
    public.with_name("raw").write_bytes(raw)
    digest = openssl("dgst", "-sha256", "-r", public.with_name("raw")).decode().split()[0]
    assert read_signer(private).key_id == digest[:16]
    assert read_verifier([public]).key_ids == (digest[:16],)


def test_openssl_accepts_a_signature_of_a_registry(
    key_files: tuple[Path, Path], tmp_path: Path
) -> None:
    private, public = key_files
    signer = read_signer(private)
    registry = new_registry(tmp_path / "registry")
    identity = push(registry, tmp_path, "1", signer=signer).id
    (tmp_path / "message").write_bytes(f"infinity-artifact-v1\n{NAME}\n1\n{identity}\n".encode())
    signature = tmp_path / "registry" / paths.signature(NAME, "1", signer.key_id)
    said = openssl(
        *("pkeyutl", "-verify", "-pubin", "-inkey", public, "-rawin"),
        *("-in", tmp_path / "message", "-sigfile", signature),
    )
    assert b"Signature Verified Successfully" in said


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (("genpkey", "-algorithm", "rsa"), "expected an Ed25519 private key, found one of another"),
        (
            ("genpkey", "-algorithm", "ed25519", "-aes-256-cbc", "-pass", "pass:secret"),
            "expected a private key without a passphrase, found an encrypted one",
        ),
        (
            ("genpkey", "-algorithm", "ed25519", "-outform", "DER"),
            "expected an Ed25519 private key in PEM, found something else",
        ),
    ],
)
def test_other_keys_are_refused(tmp_path: Path, command: tuple[str, ...], words: str) -> None:
    path = tmp_path / "key.pem"
    openssl(*command, "-out", path)
    with pytest.raises(UsageError, match=words):
        read_signer(path)


def test_a_private_key_in_place_of_a_public_one_is_named(key_files: tuple[Path, Path]) -> None:
    with pytest.raises(UsageError, match="expected an Ed25519 public key in PEM, found a private"):
        read_verifier([key_files[0]])
    with pytest.raises(UsageError, match=r"missing\.pem: no such key file"):
        read_verifier([key_files[0].with_name("missing.pem")])


def test_a_pulled_directory_carries_its_signatures(tmp_path: Path) -> None:
    (one, trusts_one), (other, trusts_other) = new_key(), new_key()
    registry = new_registry(tmp_path / "registry")
    push(registry, tmp_path, "1", signer=one)
    registry.sign(resolve(registry, NAME), other)
    artifact = registry.pull(resolve(registry, NAME), tmp_path / "out")

    document = json.loads((tmp_path / "out.sig").read_bytes())
    assert (document["name"], document["version"], document["id"]) == (
        NAME,
        "1",
        artifact.artifact_id,
    )
    assert [entry["key_id"] for entry in document["signatures"]] == sorted(
        (one.key_id, other.key_id)
    )
    for verifier in (trusts_one, trusts_other):
        assert check_local_signature(artifact, verifier).version == "1"
    stranger, trusts_stranger = new_key()
    with pytest.raises(RefusedError, match=f"out.sig: expected a signature by {stranger.key_id}"):
        check_local_signature(artifact, trusts_stranger)


def test_signatures_of_another_artifact_are_refused(tmp_path: Path) -> None:
    signer, verifier = new_key()
    artifact, other = fake(tmp_path, "1"), fake(tmp_path, "2")
    signature = LocalSignature.of(NAME, "1", other.artifact_id, {}).signed_by(signer)
    with pytest.raises(RefusedError, match=r"expected signatures in .*-1\.sig, found no such file"):
        check_local_signature(artifact, verifier)
    write_local_signature(artifact.path, signature)
    with pytest.raises(RefusedError, match=rf"signs {NAME} {other.artifact_id}, but the directory"):
        check_local_signature(artifact, verifier)
    # The id made to fit: the signature does not.
    write_local_signature(artifact.path, replace(signature, id=artifact.artifact_id))
    with pytest.raises(RefusedError, match=f"found {signer.key_id} and none of them valid"):
        check_local_signature(artifact, verifier)
    signature_path(artifact.path).write_bytes(b"{}\n")
    with pytest.raises(RefusedError, match=r"-1\.sig: .*missing key"):
        check_local_signature(artifact, verifier)


def test_a_signature_of_the_same_key_over_something_else_is_refused(tmp_path: Path) -> None:
    signer, verifier = new_key()
    registry = Registry(new_registry(tmp_path / "registry").storage, verifier=verifier)
    identity = push(registry, tmp_path, "1").id
    wrong = signer.sign(version_message(NAME, "2", identity))
    registry.storage.replace(paths.signature(NAME, "1", signer.key_id), wrong)
    with pytest.raises(RefusedError, match=f"found {signer.key_id} and none valid; sign it"):
        registry.pull(resolve(registry, NAME), tmp_path / "out")


def test_what_was_seen_is_remembered_per_registry_and_channel(tmp_path: Path) -> None:
    registry = new_registry(tmp_path / "registry")
    push(registry, tmp_path, "1")
    first, second = promote(registry, "1"), promote(registry, "1", channel="staging")
    SeenEvents(tmp_path / "seen").check("here", second)

    seen = SeenEvents(tmp_path / "seen")
    seen.check("here", second)
    seen.check("here", first)  # another channel
    seen.check("there", replace(second, seq=1))  # another registry
    with pytest.raises(RefusedError, match="is at event 2, but event 3 was seen before"):
        seen.check("here", replace(second, seq=2))
    file = tmp_path / "seen" / SEEN_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "seen").stat().st_mode & 0o777 == 0o700
    file.write_bytes(b"rubbish")
    with pytest.raises(RefusedError, match=r"seen-events\.json: expected JSON"):
        seen.check("here", second)
