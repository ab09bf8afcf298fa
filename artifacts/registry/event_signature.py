"""Signatures of channel events. Knows nothing of keys: see `ed25519`."""

import base64
import binascii
from dataclasses import replace

from infinity_v3.artifacts.registry.records import Event, EventSignature
from infinity_v3.artifacts.registry.signing import SignatureVerifier, Signer, channel_message

SIGNATURE_BYTES = 64


def sign_event(event: Event, seq: int, signer: Signer) -> Event:
    """Sign the event of a channel as number `seq`; other events come back as they are."""
    if event.channel is None:
        return event
    message = channel_message(event.name, event.channel, event.version, event.id, seq)
    signature = EventSignature(
        key_id=signer.key_id, signature=encode_signature(signer.sign(message))
    )
    return replace(event, signature=signature)


def is_event_trusted(event: Event, verifier: SignatureVerifier) -> bool:
    """Tell whether a trusted key signed this move of a channel."""
    if event.channel is None or event.signature is None:
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
