"""Reads of a registry's small files that refuse what is not there or not what it should be.

Knows nothing of what a record means.
"""

import hashlib
from collections.abc import Sequence
from typing import TypeVar

from infinity_v3.artifacts.codec import artifact_id, decode_manifest
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.names import is_name, is_sha256
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.records import MAX_RECORD_BYTES, decode_record
from infinity_v3.artifacts.registry.storage import RegistryStorage

RecordT = TypeVar("RecordT")
NUM_READERS = 16
CHECK = "`infinity-compile registry fsck` lists everything that is wrong"


def shown(storage: RegistryStorage, path: str) -> str:
    """A file of a registry as messages name it."""
    return f"{storage.location.rstrip('/')}/{path}"


def read_record(storage: RegistryStorage, path: str, cls: type[RecordT]) -> RecordT | None:
    """Read one record strictly, None where there is none.

    Raises:
        RefusedError: names the file and the key at fault.
    """
    data = storage.read(path)
    return None if data is None else parse_record(storage, path, data, cls)


def read_many(storage: RegistryStorage, files: Sequence[str]) -> list[bytes | None]:
    """Read small files, in their order; several at a time where each costs a round trip."""
    if storage.is_local or len(files) < 2:
        return [storage.read(path) for path in files]
    from concurrent.futures import ThreadPoolExecutor  # takes time to load, and few need it

    with ThreadPoolExecutor(NUM_READERS) as readers:
        return list(readers.map(storage.read, files))


def parse_record(storage: RegistryStorage, path: str, data: bytes, cls: type[RecordT]) -> RecordT:
    """Read the bytes of one record strictly."""
    if len(data) > MAX_RECORD_BYTES:
        raise RefusedError(
            f"{shown(storage, path)}: expected at most {MAX_RECORD_BYTES} bytes, found {len(data)}"
        )
    return decode_record(data, cls, shown(storage, path))


def read_document(storage: RegistryStorage, sha256: str) -> bytes:
    """Read a small blob, such as build.json, and check its digest.

    Raises:
        RefusedError: it is absent, or its content is another one.
    """
    path = paths.blob(sha256)
    data = storage.read(path)
    if data is None:
        raise RefusedError(f"{shown(storage, path)}: expected this file, found none; {CHECK}")
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise RefusedError(f"{shown(storage, path)}: expected this sha256, found {found}; {CHECK}")
    return data


def read_manifest_bytes(storage: RegistryStorage, identity: str) -> bytes:
    """Read the bytes of artifact.json and check that they are those of the id.

    Raises:
        RefusedError: absent, or another content.
    """
    path = paths.manifest(identity)
    data = storage.read(path)
    if data is None:
        raise RefusedError(f"{shown(storage, path)}: expected this manifest, found none; {CHECK}")
    found = artifact_id(data)
    if found != identity:
        raise RefusedError(f"{shown(storage, path)}: expected {identity}, found {found}; {CHECK}")
    return data


def read_manifest(storage: RegistryStorage, identity: str) -> Manifest:
    """Read the manifest of an artifact id strictly.

    Raises:
        RefusedError: absent, another content, or a manifest that breaks a rule of the format.
    """
    data = read_manifest_bytes(storage, identity)
    try:
        return decode_manifest(data)
    except RefusedError as error:
        raise RefusedError(f"{shown(storage, paths.manifest(identity))}: {error}") from error


def is_artifact_id(value: str) -> bool:
    """Tell whether `value` is `sha256:<64 hex digits>`."""
    prefix, colon, digits = value.partition(":")
    return prefix == "sha256" and colon == ":" and is_sha256(digits)


def artifact_names(storage: RegistryStorage) -> tuple[str, ...]:
    """The names of a registry, sorted; files that lie between their folders are left out."""
    names = names_in(storage, paths.NAMES)
    # In an object store, what is no folder has no log either.
    return tuple(name for name in names if not storage.is_local or not is_stray(storage, name))


def is_stray(storage: RegistryStorage, name: str) -> bool:
    """Tell whether a file lies where the folder of a name is expected."""
    try:
        return storage.size(f"{paths.NAMES}/{name}") is not None
    except RefusedError:
        return False  # A link: whoever looks into it says so.


def names_in(storage: RegistryStorage, folder: str, suffix: str = "") -> tuple[str, ...]:
    """Names in a folder that end in `suffix`, without it; what cannot be a name is left out."""
    found = (entry for entry in storage.list(folder) if entry.endswith(suffix))
    stems = (entry[: len(entry) - len(suffix)] for entry in found)
    return tuple(stem for stem in stems if is_name(stem))
