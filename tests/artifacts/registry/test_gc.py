"""What nothing needs goes; what anything needs stays, and the registry stays whole."""

import os
import shutil
import time
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.gc import GcReport
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.records import EventKind
from infinity_v3.artifacts.registry.registry import Registry
from registries import (
    ACTOR,
    NAME,
    checked,
    damage_of,
    fake,
    files_below,
    new_key,
    new_registry,
    promote,
    push,
    resolve,
)

DAY_S = 24 * 3600.0


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return new_registry(tmp_path / "registry")


def collect(registry: Registry, *, is_dry_run: bool = False) -> GcReport:
    return Registry(registry.storage).collect_garbage(grace_s=DAY_S, is_dry_run=is_dry_run)


def make_old(folder: Path) -> None:
    """Let every file be two days old."""
    then = time.time() - 2 * DAY_S
    for path in files_below(folder):
        os.utime(path, (then, then))


def listing(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in files_below(folder)}


def test_nothing_goes_that_a_version_needs(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1")
    push(registry, tmp_path, "2")
    promote(registry, "1")
    make_old(tmp_path / "registry")
    before = listing(tmp_path / "registry")
    report = collect(registry)
    assert (report.removed, report.young) == ((), ())
    assert listing(tmp_path / "registry") == before


def test_a_retired_version_goes_with_what_only_it_needed(
    registry: Registry, tmp_path: Path
) -> None:
    signer, _ = new_key()
    artifact = fake(tmp_path, "1")
    only_here = b'{"labels":{"only":"here"}}'
    (artifact.path / "build.json").write_bytes(only_here)
    push(registry, tmp_path, "1", signer=signer)
    build = resolve(registry, NAME).record.build
    push(registry, tmp_path, "2")
    registry.retire(NAME, "1", actor=ACTOR)
    expected = {
        paths.manifest(artifact.artifact_id): 0,
        paths.signature(NAME, "1", signer.key_id): 64,
    }
    young = collect(registry)
    assert (young.removed, set(young.young)) == ((), set(expected))

    make_old(tmp_path / "registry")
    dry = collect(registry, is_dry_run=True)
    assert {removal.path for removal in dry.removed} == set(expected)
    before = listing(tmp_path / "registry")
    report = collect(registry)

    assert report.removed == dry.removed
    assert before - listing(tmp_path / "registry") == set(expected)
    # The log still tells what was measured then.
    assert build is not None
    assert registry.document(build) == only_here
    assert damage_of(registry) == {}
    registry.pull(resolve(registry, NAME), tmp_path / "out")


def test_what_a_killed_push_left_goes(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1")
    blob = paths.blob("0" * 64)
    registry.storage.create(blob, b"left behind")
    assert collect(registry).young == (blob,)
    make_old(tmp_path / "registry")
    report = collect(registry)
    assert [(removal.path, removal.num_bytes) for removal in report.removed] == [(blob, 11)]
    assert report.num_bytes == 11


def test_policies_that_the_log_names_stay(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1")
    policy = registry.store_document(b"[channels.prod]\n")
    order = ChannelMove(
        name=NAME,
        channel="prod",
        version="1",
        id=fake(tmp_path, "1").artifact_id,
        kind=EventKind.PROMOTE,
        actor=ACTOR,
        policy=policy,
    )
    registry.move_channel(order)
    make_old(tmp_path / "registry")
    assert collect(registry).removed == ()
    assert registry.document(policy) == b"[channels.prod]\n"


def test_a_damaged_registry_is_left_alone(registry: Registry, tmp_path: Path) -> None:
    """What a version needs that cannot be read is not known."""
    push(registry, tmp_path, "1")
    registry.storage.create(paths.blob("0" * 64), b"left behind")
    registry.storage.delete(paths.manifest(fake(tmp_path, "1").artifact_id))
    make_old(tmp_path / "registry")
    before = listing(tmp_path / "registry")
    with pytest.raises(RefusedError, match="expected this manifest, found none"):
        collect(registry)
    assert listing(tmp_path / "registry") == before


def test_a_version_whose_record_was_lost_keeps_its_files(
    registry: Registry, tmp_path: Path
) -> None:
    """The log is the truth: what it pushed stays, and a push of the same brings the record back."""
    push(registry, tmp_path, "1")
    promote(registry, "1")
    push(registry, tmp_path, "2")
    make_old(tmp_path / "registry")
    path = paths.version(NAME, "1")
    record = registry.storage.read(path)
    registry.storage.delete(path)
    before = listing(tmp_path / "registry")
    with pytest.raises(RefusedError, match=rf"{path}: expected the record .* event 1 pushed"):
        collect(registry)
    assert listing(tmp_path / "registry") == before

    report = push(registry, tmp_path, "1")
    assert (report.is_new, report.event, report.restored) == (False, 1, (path,))
    assert registry.storage.read(path) == record
    assert collect(registry).removed == ()
    assert damage_of(registry) == {}


def test_files_without_any_log_are_left_alone(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1")
    make_old(tmp_path / "registry")
    shutil.rmtree(tmp_path / "registry" / paths.NAMES)
    before = listing(tmp_path / "registry")
    with pytest.raises(RefusedError, match="expected the log of at least one name, found none"):
        collect(registry)
    assert listing(tmp_path / "registry") == before
    assert paths.NAMES in damage_of(registry)


def test_a_channel_whose_file_was_lost_keeps_its_version_from_being_retired(
    registry: Registry, tmp_path: Path
) -> None:
    push(registry, tmp_path, "1")
    promote(registry, "1")
    push(registry, tmp_path, "2")
    registry.storage.delete(paths.channel(NAME, "prod"))
    with pytest.raises(RefusedError, match="a version that no channel points to, found prod"):
        registry.retire(NAME, "1", actor=ACTOR)


def test_an_unreadable_lease_counts_for_an_hour(registry: Registry, tmp_path: Path) -> None:
    """It keeps both away, as it may be of either; fsck notes it, and an old one is removed."""
    path = f"{paths.LEASES}/empty.json"
    registry.storage.replace(path, b"")
    assert [finding.path for finding in checked(registry).notes] == [path]
    with pytest.raises(RefusedError, match=rf"{path}: .* counts for 60 min more; remove it where"):
        push(registry, tmp_path, "1")
    with pytest.raises(RefusedError, match=f"{path}: expected a lease, found something else"):
        collect(registry)
    make_old(tmp_path / "registry")
    collect(registry)
    assert registry.storage.list(paths.LEASES) == ()
    push(registry, tmp_path, "1")
