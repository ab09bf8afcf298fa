"""Goes through a whole registry and says what is wrong, file by file. Changes nothing."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from infinity_v3.artifacts.codec import decode_manifest
from infinity_v3.artifacts.manifest import Manifest
from infinity_v3.artifacts.names import is_name, is_sha256
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.findings import Finding, Findings
from infinity_v3.artifacts.registry.fsck_name import NameCheck, NameContents
from infinity_v3.artifacts.registry.holdings import blobs_of_event, blobs_of_record
from infinity_v3.artifacts.registry.leases import unreadable_leases
from infinity_v3.artifacts.registry.signing import SignatureVerifier
from infinity_v3.artifacts.registry.storage import RegistryStorage
from infinity_v3.artifacts.registry.stored import is_stray, read_manifest_bytes

_JSON = ".json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckReport:
    """What was checked and what was found.

    Attributes:
        damage: what is not what it should be; () = the registry is whole.
        notes: what is unfinished or unneeded, and no loss.
        num_bytes: of the blobs that were checked.
    """

    damage: tuple[Finding, ...]
    notes: tuple[Finding, ...]
    num_names: int
    num_versions: int
    num_events: int
    num_channels: int
    num_blobs: int
    num_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FsckOrder:
    """How thorough a check is to be.

    Attributes:
        verifier: signatures of its keys must fit; None = they are only read.
        reads_blobs: compute every digest; False = compare sizes only.
        advance: called with each blob's bytes.
    """

    verifier: SignatureVerifier | None = None
    reads_blobs: bool = True
    advance: Callable[[int], None] = lambda _: None


def fsck(storage: RegistryStorage, order: FsckOrder) -> FsckReport:
    """Check chains, versions, channels, signatures, manifests and blobs.

    Raises:
        RunFailedError: the place cannot be read.
    """
    findings = Findings(storage.location)
    with findings.checking(paths.POLICY):
        if storage.size(paths.POLICY) is None:
            findings.damaged(paths.POLICY, "expected the gates of the channels, found no such file")
    with findings.checking(paths.LEASES):
        for path in unreadable_leases(storage):
            problem = "expected a lease, found something else; an hour old, `gc` removes it"
            findings.note(path, problem)
    contents = {
        name: NameCheck(storage, name, findings, order.verifier).run()
        for name in _names(storage, findings)
    }
    if not any(name.events for name in contents.values()):
        _check_empty(storage, findings)
    sizes = _needed_blobs(storage, contents, findings)
    num_bytes = sum(
        _check_blob(storage, sha256, size, findings, order) for sha256, size in sizes.items()
    )
    _note_unneeded(storage, contents, frozenset(sizes), findings)
    return FsckReport(
        damage=tuple(findings.damage),
        notes=tuple(findings.notes),
        num_names=len(contents),
        num_versions=sum(len(name.versions) for name in contents.values()),
        num_events=sum(len(name.events) for name in contents.values()),
        num_channels=sum(name.num_channels for name in contents.values()),
        num_blobs=len(sizes),
        num_bytes=num_bytes,
    )


def _names(storage: RegistryStorage, findings: Findings) -> Iterable[str]:
    for entry in findings.listed(storage, paths.NAMES):
        path = f"{paths.NAMES}/{entry}"
        if not is_name(entry):
            findings.damaged(path, "expected the name of an artifact")
        elif is_stray(storage, entry):
            findings.damaged(path, "expected the folder of a name, found a file; move it away")
        else:
            yield entry


def _check_empty(storage: RegistryStorage, findings: Findings) -> None:
    """Manifests without any name are of lost logs, unless a lease tells of a first push."""
    if findings.listed(storage, paths.NAMES) or not findings.listed(storage, paths.MANIFESTS):
        return
    problem = "expected the log of at least one name, found none beside manifests"
    if findings.listed(storage, paths.LEASES):
        findings.note(paths.NAMES, f"{problem}; a first push is under way or was interrupted")
    else:
        findings.damaged(paths.NAMES, f"{problem}; put it back, or push again")


def _needed_blobs(
    storage: RegistryStorage, contents: dict[str, NameContents], findings: Findings
) -> dict[str, int | None]:
    """Digest to expected size, None where no manifest tells it."""
    sizes: dict[str, int | None] = {}
    for content in contents.values():
        for event in content.events:
            sizes.update(dict.fromkeys(blobs_of_event(event)))
        for record in content.versions.values():
            sizes.update(dict.fromkeys(blobs_of_record(record)))
    for name, content in contents.items():
        for identity in {record.id for record in content.versions.values()}:
            manifest = _manifest(storage, name, identity, findings)
            if manifest is not None:
                sizes.update({entry.sha256: entry.num_bytes for entry in manifest.files})
    return sizes


def _manifest(
    storage: RegistryStorage, name: str, identity: str, findings: Findings
) -> Manifest | None:
    path = paths.manifest(identity)
    manifest: Manifest | None = None
    with findings.checking(path):
        manifest = decode_manifest(read_manifest_bytes(storage, identity))
        if manifest.name != name:
            findings.damaged(path, f"a version of {name} is this manifest of {manifest.name}")
    return manifest


def _check_blob(
    storage: RegistryStorage,
    sha256: str,
    expected_bytes: int | None,
    findings: Findings,
    order: FsckOrder,
) -> int:
    path = paths.blob(sha256)
    size: int | None = None
    with findings.checking(path):
        size = storage.size(path)
        if size is None:
            findings.damaged(path, "expected this blob, found none; push the artifact again")
        elif expected_bytes is not None and size != expected_bytes:
            findings.damaged(
                path, f"expected {expected_bytes} bytes, found {size}; push the artifact again"
            )
        elif order.reads_blobs and (found := storage.digest(path)) != sha256:
            findings.damaged(path, f"expected its name as sha256, found {found}; push it again")
    order.advance(size or 0)
    return size or 0


def _note_unneeded(
    storage: RegistryStorage,
    contents: dict[str, NameContents],
    needed: frozenset[str],
    findings: Findings,
) -> None:
    """Entries that cannot be blobs or manifests are damage; what nothing needs is told."""
    ids = {record.id for content in contents.values() for record in content.versions.values()}
    for entry in findings.listed(storage, paths.BLOBS):
        if not is_sha256(entry):
            findings.damaged(f"{paths.BLOBS}/{entry}", "expected 64 hex digits as its name")
        elif entry not in needed:
            findings.note(paths.blob(entry), "no version needs it; `gc` removes it")
    for entry in findings.listed(storage, paths.MANIFESTS):
        stem = entry.removesuffix(_JSON)
        if stem == entry or not is_sha256(stem):
            findings.damaged(f"{paths.MANIFESTS}/{entry}", "expected a manifest's digest as name")
        elif f"sha256:{stem}" not in ids:
            findings.note(f"{paths.MANIFESTS}/{entry}", "no version needs it; `gc` removes it")
