"""Checks the signatures beside an artifact directory. Knows nothing of registries."""

from pathlib import Path
from typing import TYPE_CHECKING

from infinity_v3.artifacts.errors import InfinityError

if TYPE_CHECKING:
    from infinity_v3.artifacts.store import Artifact


def check_key(key: Path) -> None:
    """Refuse a file that holds no public key, before anything is looked for.

    Raises:
        InfinityError: names the option.
    """
    # Not before a key was given: the library takes time to load.
    from infinity_v3.artifacts.registry.ed25519 import read_verifier

    try:
        read_verifier([key])
    except InfinityError as error:
        raise type(error)(f"--require-signature {error}") from None


def check_signature(artifact: "Artifact", key: Path) -> None:
    """Refuse an artifact directory that the owner of a key has not signed.

    Raises:
        RefusedError: DIR.sig is absent, or holds no valid signature of that key.
    """
    from infinity_v3.artifacts.registry.ed25519 import read_verifier
    from infinity_v3.artifacts.registry.local_signature import check_local_signature

    check_local_signature(artifact, read_verifier([key]))
