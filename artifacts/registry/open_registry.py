"""From a location to the registry there. Reads its marker and nothing else."""

from infinity_v3.artifacts.registry.marker import check_registry
from infinity_v3.artifacts.registry.open_storage import open_storage
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.seen_events import SeenEvents
from infinity_v3.artifacts.registry.signing import SignatureVerifier


def open_registry(
    location: str,
    *,
    unsafe_channel_writes: bool = False,
    verifier: SignatureVerifier | None = None,
    seen: SeenEvents | None = None,
) -> Registry:
    """Open the registry at a location.

    Args:
        location: a path or a URL, see `open_storage`.
        unsafe_channel_writes: move channels even where a store cannot keep two writers apart.
        verifier: what is pulled must be signed by one of its keys.
        seen: remembers the newest events, where signatures are asked for.

    Raises:
        UsageError: not a location.
        RefusedError: there is no registry, or one of another format.
        RunFailedError: the place cannot be read.
    """
    storage = open_storage(location, unsafe_channel_writes=unsafe_channel_writes)
    check_registry(storage)
    return Registry(storage, verifier=verifier, seen=seen)
