"""Signatures of channel events. Knows nothing of keys: see `ed25519`."""

import base64
import binascii
from dataclasses import replace

from infinity_v3.artifacts.registry.records import Event, EventSignature
from infinity_v3.artifacts.registry.signing import SignatureVerifier, Signer, channel_message

SIGNATURE_BYTES = 64
UNVERIFIED = "unverified:"
"""Begins the name of an actor that no key stands for."""


def sign_event(event: Event, seq: int, signer: Signer) -> Event:
    """Sign the event of a channel as number `seq`; other events come back as they are."""
    if event.channel is None:
        return event
    message = channel_message(event.name, event.channel, event.version, event.id, seq)
    signature = EventSignature(
        key_id=signer.key_id, signature=encode_signature(signer.sign(message))
    )
    return replace(event, signature=signature)


def is_signed_by(event: Event, signer: Signer) -> bool:
    """Tell whether this move of a channel is what the key would sign now."""
    # Ed25519 signs the same message the same way every time.
    expected = sign_event(event, event.seq, signer).signature
    return event.actor == signer.key_id and event.signature == expected


def actor_problem(event: Event) -> str | None:
    """What is wrong with who a move says has made it: only a key's owner is called by its id."""
    signed_by = None if event.signature is None else event.signature.key_id
    if signed_by is None and event.actor.startswith(UNVERIFIED):
        return None
    if event.actor == signed_by:
        return None
    expected = f"{signed_by}, which signed it" if signed_by else f"{UNVERIFIED}<user>, unsigned"
    return f"expected as its actor {expected}, found {event.actor!a}"


def is_event_trusted(event: Event, verifier: SignatureVerifier) -> bool:
    """Tell whether a trusted key signed this move of a channel, and is its actor."""
    if event.channel is None or event.signature is None or actor_problem(event) is not None:
        return False
    signature = decode_signature(event.signature.signature)
    if signature is None:
        return False
    message = channel_message(event.name, event.channel, event.version, event.id, event.seq)
    return verifier.verify(event.signature.key_id, signature, message)


def encode_signature(signature: bytes) -> str:
    """A signature as text."""
    return base64.b64encode(signature).decode("ascii")


def decode_signature(text: str) -> bytes | None:
    """The 64 bytes of a signature, None where the text holds none."""
    try:
        signature = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return signature if len(signature) == SIGNATURE_BYTES else None
