"""`registry sign` and `registry verify`."""

from collections.abc import Mapping
from pathlib import Path

import click

from infinity_v3.artifacts.digest import DigestPolicy
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.names import NAME_RULE, is_name
from infinity_v3.artifacts.registry.local_signature import (
    LocalSignature,
    check_local_signature,
    read_local_signature,
    signature_path,
    write_local_signature,
)
from infinity_v3.artifacts.registry.signing import SignatureVerifier, Signer, version_message
from infinity_v3.artifacts.registry.trust import check_trust
from infinity_v3.artifacts.registry.version_signatures import trusted_key
from infinity_v3.artifacts.store import Artifact, open_artifact
from infinity_v3.compiler.command_group import json_option
from infinity_v3.compiler.registry.keys import signer_of, trusted_keys_option, verifier_of
from infinity_v3.compiler.registry.output import print_result, progress_of
from infinity_v3.compiler.registry.place import (
    RegistryPlace,
    registry_options,
    registry_write_options,
)
from infinity_v3.compiler.registry.target import find_target


@click.command()
@click.argument("target", metavar="REF|DIR")
@click.option(
    "--key",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PRIVATE.pem",
    help="Ed25519 private key, as `openssl genpkey -algorithm ed25519` makes one.",
)
@click.option(
    "--version",
    metavar="V",
    help="Of a directory: the version to sign it as; without it, the one in DIR.sig.",
)
@registry_write_options
@json_option
def sign(place: RegistryPlace, target: str, key: Path, version: str | None, is_json: bool) -> None:
    """Sign a version in the registry, or an artifact directory beside it in DIR.sig."""
    signer = signer_of(key)
    if signer is None:
        raise RuntimeError("click asks for --key; this is a bug")
    found = find_target(target)
    if isinstance(found, Path):
        document = _sign_directory(found, version, signer)
    else:
        if version is not None:
            raise UsageError(f"--version: expected a directory to sign, found {target}")
        registry = place.open()
        resolved = registry.resolve(found)
        registry.manifest(resolved.id)
        registry.sign(resolved, signer)
        document = _signed(resolved.name, resolved.version, resolved.id, signer.key_id)
    print_result(document, _text(document), is_json=is_json)


@click.command()
@click.argument("target", metavar="REF|DIR")
@trusted_keys_option("A trusted Ed25519 public key. May be given more than once.", is_required=True)
@registry_options
@json_option
def verify(place: RegistryPlace, target: str, keys: tuple[Path, ...], is_json: bool) -> None:
    """Check that a trusted key signed a version in the registry, or an artifact directory.

    Of a channel its last move must be signed as well; of a directory every file is hashed.
    """
    verifier = verifier_of(keys)
    if verifier is None:
        raise RuntimeError("click asks for --key; this is a bug")
    found = find_target(target)
    if isinstance(found, Path):
        document = _verify_directory(found, verifier, is_json=is_json)
    else:
        registry = place.open()
        resolved = registry.resolve(found)
        key_id = check_trust(registry.storage, resolved, verifier)
        document = _signed(resolved.name, resolved.version, resolved.id, key_id)
    print_result(document, _text(document), is_json=is_json)


def _sign_directory(path: Path, version: str | None, signer: Signer) -> dict[str, str]:
    artifact = open_artifact(path, digests=DigestPolicy.ALWAYS, allow_shared=True)
    before = read_local_signature(artifact.path)
    if before is not None and _is_of(before, artifact, version):
        signature = before.signed_by(signer)
    else:
        name = artifact.manifest.name
        signature = LocalSignature.of(
            name, _version(artifact, version), artifact.artifact_id, {}
        ).signed_by(signer)
    write_local_signature(artifact.path, signature)
    return _signed(signature.name, signature.version, signature.id, signer.key_id)


def _is_of(before: LocalSignature, artifact: Artifact, version: str | None) -> bool:
    return (before.name, before.id) == (artifact.manifest.name, artifact.artifact_id) and (
        version in (None, before.version)
    )


def _version(artifact: Artifact, version: str | None) -> str:
    if version is None:
        raise UsageError(
            f"{artifact.path}: expected --version V, as {signature_path(artifact.path)} does not "
            "say which version this is"
        )
    if not is_name(version):
        raise UsageError(f"--version: expected {NAME_RULE}; found {version!a}")
    return version


def _verify_directory(path: Path, verifier: SignatureVerifier, *, is_json: bool) -> dict[str, str]:
    progress = progress_of(is_json=is_json)
    with progress.stage("check digests"):
        artifact = open_artifact(path, digests=DigestPolicy.ALWAYS, allow_shared=True)
    found = check_local_signature(artifact, verifier)
    message = version_message(found.name, found.version, found.id)
    key_id = trusted_key(found.by_key(), message, verifier)
    return _signed(found.name, found.version, found.id, str(key_id))


def _signed(name: str, version: str, identity: str, key_id: str) -> dict[str, str]:
    return {"name": name, "version": version, "id": identity, "key_id": key_id}


def _text(document: Mapping[str, str]) -> str:
    return (
        f"{document['name']}=={document['version']}\n  {document['id']}\n"
        f"  signed by {document['key_id']}\n"
    )
