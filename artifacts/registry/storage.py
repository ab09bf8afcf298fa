"""What a registry needs of the place it lies in. Implemented for directories and for fsspec URLs.

Paths are relative, with `/`; folders come into being with their first file.
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

MAX_READ_BYTES = 64 << 20
"""Of `read`; the largest manifest."""


class RegistryStorage(Protocol):
    """Files under relative paths.

    Obligations: a file is there as a whole or not at all, also after a kill; what a method has
    written is durable when it returns. Failures of the place itself (network, permission, disk) are
    `RunFailedError` that names location and path; "absent" is never an error. Usable from several
    threads; several processes may use one location at a time.
    """

    @property
    def location(self) -> str:
        """The directory or URL, as shown to users; without credentials."""
        ...

    @property
    def is_local(self) -> bool:
        """Whether digests of blobs can be computed without a download."""
        ...

    @property
    def has_conditional_writes(self) -> bool:
        """Whether `create` is atomic between processes and hosts."""
        ...

    def read(self, path: str) -> bytes | None:
        """The content of a small file, None where there is none.

        Raises:
            RefusedError: it is larger than 64 MiB.
        """
        ...

    def size(self, path: str) -> int | None:
        """Bytes of a file, None where there is none."""
        ...

    def modified_s(self, path: str) -> float | None:
        """When a file was written, seconds since the epoch; None where there is none."""
        ...

    def list(self, folder: str) -> tuple[str, ...]:
        """Names of files and folders directly in a folder, sorted; () where there is none.

        Temporary files and lock files of the implementation are never listed; a folder that lost
        its last file may still be.
        """
        ...

    def create(self, path: str, data: bytes) -> bool:
        """Write a file that must not exist; False where it does, and nothing changes."""
        ...

    def replace(self, path: str, data: bytes) -> None:
        """Write a file, whether or not it exists."""
        ...

    def delete(self, path: str) -> None:
        """Remove a file, where there is one."""
        ...

    def upload(self, path: str, source: Path) -> None:
        """Copy a local file of any size in; what lies there already is replaced as a whole."""
        ...

    def download(self, path: str, target: Path) -> str | None:
        """Copy a file of any size out into a new file.

        Returns:
            The 64 hex digits of the sha256 of what was written, or None where there is none.
        """
        ...

    def digest(self, path: str) -> str | None:
        """The 64 hex digits of a file's sha256, None where there is none; reads all of it."""
        ...

    def lock(self, name: str) -> AbstractContextManager[None]:
        """Keep other writers of one name's log and channels out while the context lasts.

        Waits for a living owner, takes over from a dead one. Where a place has no locks this does
        nothing: `create` decides who comes first.

        Raises:
            RunFailedError: a living owner held it for longer than a minute; names it.
        """
        ...

    def remove_stale_temporaries(self, older_than_s: float) -> int:
        """Remove what killed writers left unfinished that long ago; living ones are spared.

        Returns:
            How many files were removed.
        """
        ...
