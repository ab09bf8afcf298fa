"""What must be signed before an artifact is used. Knows nothing of keys: see `ed25519`."""

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.event_signature import actor_problem, is_event_trusted
from infinity_v3.artifacts.registry.records import Event
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.artifacts.registry.signing import SignatureVerifier, version_message
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import shown
from infinity_v3.artifacts.registry.version_signatures import read_signatures, trusted_key


def check_trust(
    storage: RegistryStorage,
    resolved: Resolved,
    verifier: SignatureVerifier,
    seen: SeenEvents | None = None,
) -> str:
    """Refuse what no trusted key signed, and a channel that was turned back to an older event.

    Args:
        storage: the registry.
        resolved: what was found there.
        verifier: the trusted keys.
        seen: the newest events seen before; None = not remembered.

    Returns:
        The id of a trusted key that signed the version.

    Raises:
        RefusedError: names the version's signatures or the event at fault.
    """
    key_id = check_version_signature(storage, resolved, verifier)
    if resolved.event is not None:
        _check_event(storage, resolved, verifier)
        if seen is not None:
            seen.check(storage.location, resolved.event)
    return key_id


def check_version_signature(
    storage: RegistryStorage, resolved: Resolved, verifier: SignatureVerifier
) -> str:
    """Refuse a version that no trusted key signed; the id of one that did."""
    message = version_message(resolved.name, resolved.version, resolved.id)
    signatures = read_signatures(storage, resolved.name, resolved.version)
    key_id = trusted_key(signatures, message, verifier)
    if key_id is None:
        where = shown(storage, paths.signatures(resolved.name, resolved.version))
        raise RefusedError(
            f"{resolved.name}=={resolved.version}: expected a signature by "
            f"{' or '.join(verifier.key_ids)} in {where}, found "
            f"{', '.join(sorted(signatures)) or 'none'}{' and none valid' if signatures else ''}; "
            "sign it with `infinity-compile registry sign`"
        )
    return key_id


def _check_event(storage: RegistryStorage, resolved: Resolved, verifier: SignatureVerifier) -> None:
    event = resolved.event
    if event is None or is_event_trusted(event, verifier):
        return
    raise RefusedError(
        f"{shown(storage, paths.event(event.name, event.seq))}: expected a valid signature by "
        f"{' or '.join(verifier.key_ids)}, found {_found(event, verifier)}; move the channel again "
        "with a key"
    )


def _found(event: Event, verifier: SignatureVerifier) -> str:
    if event.signature is None:
        return "no signature"
    key_id = event.signature.key_id
    if key_id not in verifier.key_ids:
        return f"one by {key_id}"
    if (problem := actor_problem(event)) is not None:
        return f"one of an event that was changed: {problem}"
    return f"one by {key_id} that does not fit this event: it was made for another one"
