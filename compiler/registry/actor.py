"""Who does what a log records. Knows nothing of keys beyond their ids."""

import getpass
import os

from infinity_v3.artifacts.registry.signing import Signer


def actor_of(signer: Signer | None) -> str:
    """The signing key's id, else `unverified:<user>`, as anybody could say so."""
    if signer is not None:
        return signer.key_id
    try:
        return f"unverified:{getpass.getuser()}"
    except (KeyError, OSError):  # a container's user without an entry
        return f"unverified:{os.getuid()}"
