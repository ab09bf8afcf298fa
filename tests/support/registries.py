"""Registries of fake artifacts, keys to sign with, and storages that fail when they are told to."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fake_artifact import make_target, write_fake_artifact
from infinity_v3.artifacts.manifest import Source
from infinity_v3.artifacts.registry.ed25519 import Ed25519Signer, Ed25519Verifier
from infinity_v3.artifacts.registry.fsck import FsckOrder, FsckReport
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.marker import create_registry
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.push import PushReport
from infinity_v3.artifacts.registry.records import Event, EventKind
from infinity_v3.artifacts.registry.reference import parse_reference
from infinity_v3.artifacts.registry.registry import Registry
from infinity_v3.artifacts.registry.resolve import Resolved
from infinity_v3.artifacts.registry.signing import Signer
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.store import Artifact, open_artifact

NAME = "fake-encoder"
ACTOR = "unverified:test"
POLICY = "[channels.prod]\n"


class StoppedError(Exception):
    """What a storage raises in place of a kill."""


class StoppingStorage:
    """A storage that stops for good before its n-th write, as a kill would."""

    def __init__(self, inner: RegistryStorage, num_writes: int) -> None:
        self._inner = inner
        self._left = num_writes

    @property
    def location(self) -> str:
        return self._inner.location

    @property
    def is_local(self) -> bool:
        return self._inner.is_local

    @property
    def has_conditional_writes(self) -> bool:
        return self._inner.has_conditional_writes

    @property
    def has_stopped(self) -> bool:
        return self._left < 0

    def read(self, path: str) -> bytes | None:
        return self._inner.read(path)

    def size(self, path: str) -> int | None:
        return self._inner.size(path)

    def modified_s(self, path: str) -> float | None:
        return self._inner.modified_s(path)

    def list(self, folder: str) -> tuple[str, ...]:
        return self._inner.list(folder)

    def create(self, path: str, data: bytes) -> bool:
        self._count()
        return self._inner.create(path, data)

    def replace(self, path: str, data: bytes) -> None:
        self._count()
        self._inner.replace(path, data)

    def delete(self, path: str) -> None:
        self._count()
        self._inner.delete(path)

    def upload(self, path: str, source: Path) -> None:
        self._count()
        self._inner.upload(path, source)

    def download(self, path: str, target: Path) -> str | None:
        return self._inner.download(path, target)

    def digest(self, path: str) -> str | None:
        return self._inner.digest(path)

    def lock(self, name: str) -> AbstractContextManager[None]:
        return self._inner.lock(name)

    def remove_stale_temporaries(self, older_than_s: float) -> int:
        return self._inner.remove_stale_temporaries(older_than_s)

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise StoppedError


def new_registry(place: Path) -> Registry:
    """Make an empty registry in a directory."""
    storage = LocalStorage(place)
    create_registry(storage, POLICY)
    return Registry(storage)


def fake(folder: Path, revision: str, *, name: str = NAME) -> Artifact:
    """A fake artifact whose id depends on `revision`; made once per folder."""
    path = folder / f"{name}-{revision}"
    if not path.exists():
        source = Source(repository="local", revision=revision, files=(), license=None)
        write_fake_artifact(path, {"name": name, "source": source, "targets": (make_target(),)})
    return open_artifact(path)


def push(
    registry: Registry, folder: Path, version: str, *, signer: Signer | None = None
) -> PushReport:
    """Push the fake artifact of a version."""
    return registry.push(fake(folder, version), version, actor=ACTOR, signer=signer)


def promote(
    registry: Registry,
    version: str,
    *,
    channel: str = "prod",
    kind: EventKind = EventKind.PROMOTE,
    signer: Signer | None = None,
) -> Event:
    """Let a channel point to a version, as if its gates had passed."""
    return registry.move_channel(
        ChannelMove(
            name=NAME,
            channel=channel,
            version=version,
            id=registry.version_record(NAME, version).id,
            kind=kind,
            actor=ACTOR,
            signer=signer,
        )
    )


def resolve(registry: Registry, text: str) -> Resolved:
    """Resolve a reference as users write it."""
    return registry.resolve(parse_reference(text))


def damage_of(registry: Registry) -> Mapping[str, str]:
    """What fsck says, by path."""
    return {finding.path: finding.problem for finding in checked(registry).damage}


def checked(registry: Registry) -> FsckReport:
    """Check a registry, with eyes that have not read it yet."""
    return Registry(registry.storage).fsck(FsckOrder())


def new_key() -> tuple[Ed25519Signer, Ed25519Verifier]:
    """A fresh key and what trusts it."""
    key = Ed25519PrivateKey.generate()
    return Ed25519Signer(key), Ed25519Verifier([key.public_key()])


def files_below(root: Path) -> Iterator[Path]:
    """All files of a registry, its lock and temporary files left out."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and not any(
            part.startswith(".") for part in path.relative_to(root).parts
        ):
            yield path
