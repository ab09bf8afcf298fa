"""Options that name key files. The library that reads them is loaded where one is given."""

from collections.abc import Callable, Sequence
from pathlib import Path

import click

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry.channels import ChannelState
from infinity_v3.artifacts.registry.signing import SignatureVerifier, Signer

_Command = Callable[..., None]
_KEY_FILE = click.Path(path_type=Path)


def sign_key_option(help_text: str) -> Callable[[_Command], _Command]:
    """`--sign-key FILE`."""
    return click.option("--sign-key", type=_KEY_FILE, metavar="PRIVATE.pem", help=help_text)


def trusted_keys_option(
    help_text: str, *, is_required: bool = False
) -> Callable[[_Command], _Command]:
    """`--key PUBLIC.pem`, repeatable."""
    return click.option(
        "--key",
        "keys",
        type=_KEY_FILE,
        metavar="PUBLIC.pem",
        multiple=True,
        required=is_required,
        help=help_text,
    )


def signer_of(path: Path | None) -> Signer | None:
    """Read the private key of `--sign-key`, where it was given.

    Raises:
        UsageError: it holds no such key.
    """
    if path is None:
        return None
    from infinity_v3.artifacts.registry.ed25519 import read_signer

    return read_signer(path)


def verifier_of(paths: Sequence[Path]) -> SignatureVerifier | None:
    """Read the public keys of `--key`, None where none was given.

    Raises:
        UsageError: a file holds no such key.
    """
    if not paths:
        return None
    from infinity_v3.artifacts.registry.ed25519 import read_verifier

    return read_verifier(paths)


def check_key_given(state: ChannelState, signer: Signer | None) -> None:
    """Refuse to move a channel without a key, whose last move is signed.

    Raises:
        RefusedError: names the key that signed it.
    """
    signature = None if state.event is None else state.event.signature
    if signer is None and signature is not None:
        raise RefusedError(
            f"{state.name}:{state.channel}: its last move is signed by {signature.key_id}, and "
            "servers may require that; give --sign-key PRIVATE.pem"
        )
