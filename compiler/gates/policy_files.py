"""Files that a policy names: relative ones lie in the registry, absolute ones on this host.

Knows nothing of what is in them.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.registry.storage import RegistryStorage

NAME_MARK = "{name}"
MAX_FILE_BYTES = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFile:
    """A file of golden requests.

    Attributes:
        name: as the policy names it, the artifact's name filled in.
        data: its bytes; None = there is no such file.
    """

    name: str
    data: bytes | None

    @property
    def sha256(self) -> str | None:
        """Digest of what was used."""
        return None if self.data is None else hashlib.sha256(self.data).hexdigest()


def read_golden_file(storage: RegistryStorage, path: str, artifact_name: str) -> GoldenFile:
    """Read the file of one artifact's golden requests.

    Raises:
        RefusedError: it is larger than 64 MiB.
        RunFailedError: it cannot be read.
    """
    filled = path.replace(NAME_MARK, artifact_name)
    return GoldenFile(name=filled, data=read_policy_file(storage, filled))


def read_policy_file(storage: RegistryStorage, path: str) -> bytes | None:
    """Read a file that the policy names, None where there is none.

    Raises:
        RefusedError: it is larger than 64 MiB.
        RunFailedError: it cannot be read.
    """
    if not path.startswith("/"):
        return storage.read(path)
    with os_errors_as_run_failed("read", Path(path)):
        try:
            with Path(path).open("rb") as file:
                data = file.read(MAX_FILE_BYTES + 1)
        except FileNotFoundError:
            return None
    if len(data) > MAX_FILE_BYTES:
        raise RefusedError(f"{path}: expected at most {MAX_FILE_BYTES} bytes")
    return data
