"""Where things lie in a registry. Knows nothing of storage; every name was checked before."""

MARKER = "registry.json"
POLICY = "policy.toml"
BLOBS = "blobs/sha256"
MANIFESTS = "artifacts/sha256"
NAMES = "names"
LEASES = "leases"
"""One file per push under way; see `leases`."""
SEQ_DIGITS = 10


def blob(sha256: str) -> str:
    """Any file of an artifact, by the 64 hex digits of its content."""
    return f"{BLOBS}/{sha256}"


def manifest(artifact_id: str) -> str:
    """The manifest of an artifact id, `sha256:<64 hex>`."""
    return f"{MANIFESTS}/{artifact_id.removeprefix('sha256:')}.json"


def versions(name: str) -> str:
    """The folder of a name's versions and their signatures."""
    return f"{NAMES}/{name}/versions"


def version(name: str, version: str) -> str:
    """One version's record."""
    return f"{versions(name)}/{version}.json"


def signatures(name: str, version: str) -> str:
    """The folder of a version's detached signatures."""
    return f"{versions(name)}/{version}.sig"


def signature(name: str, version: str, key_id: str) -> str:
    """One detached signature."""
    return f"{signatures(name, version)}/{key_id}"


def channels(name: str) -> str:
    """The folder of a name's channels."""
    return f"{NAMES}/{name}/channels"


def channel(name: str, channel: str) -> str:
    """One channel's record."""
    return f"{channels(name)}/{channel}.json"


def log(name: str) -> str:
    """The folder of a name's events."""
    return f"{NAMES}/{name}/log"


def event(name: str, seq: int) -> str:
    """One event."""
    return f"{log(name)}/{seq:0{SEQ_DIGITS}d}.json"
