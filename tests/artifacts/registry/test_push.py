"""What goes into a registry comes out of it again, and nothing is sent or written twice."""

import json
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError, UsageError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.pull_cache import pull_into_cache
from infinity_v3.artifacts.registry.records import EventKind
from infinity_v3.artifacts.registry.registry import Registry
from registries import (
    ACTOR,
    NAME,
    StoppedError,
    StoppingStorage,
    checked,
    damage_of,
    fake,
    files_below,
    new_registry,
    promote,
    push,
    resolve,
)

PROFILE = b'{"format":"infinity-profile","format_version":1,"targets":{}}\n'
BUILD = b'{ "labels": {"team": "search"} }'
NUM_BLOBS = 3
"""Files of the fake artifact of one target."""


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    return new_registry(tmp_path / "registry")


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in files_below(root)}


def test_a_pulled_artifact_is_the_pushed_one_to_the_byte(
    registry: Registry, tmp_path: Path
) -> None:
    artifact = fake(tmp_path, "1.0")
    (artifact.path / "profile.json").write_bytes(PROFILE)
    (artifact.path / "build.json").write_bytes(BUILD)
    registry.push(artifact, "1.0", actor=ACTOR)

    pulled = registry.pull(resolve(registry, NAME), tmp_path / "out")

    assert pulled.artifact_id == artifact.artifact_id
    assert contents(tmp_path / "out") == contents(artifact.path)
    assert not (tmp_path / "out.sig").exists()


def test_only_missing_blobs_are_sent(registry: Registry, tmp_path: Path) -> None:
    first, second = push(registry, tmp_path, "1.0"), push(registry, tmp_path, "1.1")

    assert (first.sent_files, first.reused_files) == (NUM_BLOBS, 0)
    assert (second.sent_files, second.reused_files) == (0, NUM_BLOBS)
    assert second.reused_bytes == first.sent_bytes == 71
    assert len(registry.storage.list(paths.BLOBS)) == NUM_BLOBS


def test_the_same_version_and_id_again_changes_nothing(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1.0")
    before = contents(tmp_path / "registry")
    report = push(registry, tmp_path, "1.0")

    assert not report.is_new
    assert report.event == 1
    assert contents(tmp_path / "registry") == before


def test_the_same_version_with_another_id_is_refused(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1.0")
    before = contents(tmp_path / "registry")
    with pytest.raises(RefusedError, match=r"fake-encoder==1\.0: this version is sha256:\w+, not"):
        registry.push(fake(tmp_path, "other"), "1.0", actor=ACTOR)
    assert contents(tmp_path / "registry") == before


def test_a_retired_number_is_never_used_again(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1.0")
    registry.retire(NAME, "1.0", actor=ACTOR)
    for revision in ("1.0", "other"):
        with pytest.raises(RefusedError, match="event 2 of the log used this version"):
            registry.push(fake(tmp_path, revision), "1.0", actor=ACTOR)


@pytest.mark.parametrize(
    "damage", [b"", b"longer than it was before", b"engine of cpu-x86_64-avx2-f3X"]
)
def test_a_damaged_blob_is_replaced_by_the_next_push(
    registry: Registry, tmp_path: Path, damage: bytes
) -> None:
    push(registry, tmp_path, "1.0")
    engine = next(
        entry for entry in fake(tmp_path, "1.0").manifest.files if entry.path.endswith("model.so")
    )
    path = paths.blob(engine.sha256)
    registry.storage.replace(path, damage)
    assert list(damage_of(registry)) == [path]

    report = push(registry, tmp_path, "1.0")

    assert report.healed == (path,)
    assert damage_of(registry) == {}


def test_an_artifact_that_is_not_whole_is_not_pushed(registry: Registry, tmp_path: Path) -> None:
    artifact = fake(tmp_path, "1.0")
    (artifact.path / "tokenizer/tokenizer.json").write_bytes(b'{"model":[]}')
    with pytest.raises(RefusedError, match=r"tokenizer/tokenizer\.json: expected sha256"):
        registry.push(artifact, "1.0", actor=ACTOR)
    assert registry.storage.list(paths.BLOBS) == ()


def test_a_file_that_changes_while_it_is_sent_is_not_kept(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = fake(tmp_path, "1.0")
    upload = LocalStorage.upload

    def change_and_upload(storage: LocalStorage, path: str, source: Path) -> None:
        source.write_bytes(source.read_bytes()[::-1])
        upload(storage, path, source)

    monkeypatch.setattr(LocalStorage, "upload", change_and_upload)
    with pytest.raises(RefusedError, match="it changed while it was pushed"):
        registry.push(artifact, "1.0", actor=ACTOR)
    assert registry.storage.list(paths.BLOBS) == ()
    assert registry.names() == ()


@pytest.mark.parametrize("version", ["", "../x", "a/b", ".hidden", "a" * 101])
def test_what_cannot_be_a_version_is_refused(
    registry: Registry, tmp_path: Path, version: str
) -> None:
    with pytest.raises(UsageError, match="expected a version's name"):
        registry.push(fake(tmp_path, "1.0"), version, actor=ACTOR)


def test_a_push_may_be_killed_at_any_write(registry: Registry, tmp_path: Path) -> None:
    """However far it came, the registry is whole, and the next push completes it."""
    artifact = fake(tmp_path, "1.0")
    for num_writes in range(20):
        place = tmp_path / f"killed-{num_writes}"
        whole = new_registry(place)
        storage = StoppingStorage(LocalStorage(place), num_writes)
        try:
            Registry(storage).push(artifact, "1.0", actor=ACTOR)
        except StoppedError:
            assert damage_of(whole) == {}
            assert Registry(whole.storage).push(artifact, "1.0", actor=ACTOR).name == NAME
        assert [finding.path for finding in checked(whole).notes] == []
        assert resolve(Registry(whole.storage), NAME).id == artifact.artifact_id
        if not storage.has_stopped:
            # Lease, blobs, manifest, event, version and the end of the lease.
            assert num_writes == NUM_BLOBS + 5
            return
    pytest.fail("a push never came to its end")


def test_the_event_is_what_makes_a_version(registry: Registry, tmp_path: Path) -> None:
    """A push that was killed before it wrote the version's record can be pulled already."""
    place = tmp_path / "registry"
    with pytest.raises(StoppedError):
        push(Registry(StoppingStorage(LocalStorage(place), NUM_BLOBS + 3)), tmp_path, "1.0")
    path = paths.version(NAME, "1.0")
    assert registry.storage.size(path) is None

    assert resolve(registry, NAME).version == "1.0"
    notes = checked(registry).notes
    assert [finding.path for finding in notes] == [path]

    push(registry, tmp_path, "1.1")  # the next writer, of whatever
    assert registry.storage.size(path) is not None
    assert list(registry.versions(NAME)) == ["1.0", "1.1"]


def test_pull_never_overwrites(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1.0")
    resolved = resolve(registry, NAME)
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="out: already exists"):
        registry.pull(resolved, tmp_path / "out")
    (tmp_path / "other.sig").write_text("mine")
    with pytest.raises(UsageError, match=r"other\.sig: already exists"):
        registry.pull(resolved, tmp_path / "other")
    assert (tmp_path / "other.sig").read_text() == "mine"
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("damage", [None, b"engine of cpu-x86_64-avx2-f3X"])
def test_a_pull_of_damaged_blobs_leaves_nothing(
    registry: Registry, tmp_path: Path, damage: bytes | None
) -> None:
    push(registry, tmp_path, "1.0")
    engine = next(
        entry for entry in fake(tmp_path, "1.0").manifest.files if entry.path.endswith("model.so")
    )
    path = paths.blob(engine.sha256)
    if damage is None:
        registry.storage.delete(path)
    else:
        registry.storage.replace(path, damage)
    out = tmp_path / "outputs" / "out"
    with pytest.raises(RefusedError, match=rf"{path}: expected {engine.path} of the artifact"):
        registry.pull(resolve(registry, NAME), out)
    assert not out.parent.exists()


def test_the_cache_pulls_once_and_mends_itself(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1.0")
    resolved = resolve(registry, NAME)
    pulled: list[int] = []
    path = pull_into_cache(registry, resolved, tmp_path / "cache", advance=pulled.append)
    assert sum(pulled) == 71
    assert path == tmp_path / "cache" / "pulled" / resolved.id.removeprefix("sha256:")

    pulled.clear()
    assert pull_into_cache(registry, resolved, tmp_path / "cache", advance=pulled.append) == path
    assert pulled == []

    (path / "tokenizer/tokenizer.json").write_bytes(b'{"model":[]}')
    assert pull_into_cache(registry, resolved, tmp_path / "cache", advance=pulled.append) == path
    assert sum(pulled) == 71
    assert (path / "tokenizer/tokenizer.json").read_bytes() == b'{"model":{}}'


def test_the_cache_follows_the_documents_of_the_version_asked_for(
    registry: Registry, tmp_path: Path
) -> None:
    """One id, two versions: the second was tuned and has no build.json."""
    artifact, cache = fake(tmp_path, "1.0"), tmp_path / "cache"
    tuned = PROFILE.replace(b'"targets":{}', b'"targets":{"cpu":{}}')
    (artifact.path / "profile.json").write_bytes(PROFILE)
    (artifact.path / "build.json").write_bytes(BUILD)
    registry.push(artifact, "1.0", actor=ACTOR)
    (artifact.path / "profile.json").write_bytes(tuned)
    (artifact.path / "build.json").unlink()
    registry.push(artifact, "1.1", actor=ACTOR)
    first, second = (resolve(registry, f"{NAME}=={version}") for version in ("1.0", "1.1"))
    assert first.id == second.id

    for _ in range(2):
        path = pull_into_cache(registry, first, cache)
        assert (path / "profile.json").read_bytes() == PROFILE
        assert (path / "build.json").read_bytes() == BUILD
        assert pull_into_cache(registry, second, cache) == path
        assert (path / "profile.json").read_bytes() == tuned
        assert not (path / "build.json").exists()

    (path / "profile.json").write_bytes(b"tuned here")
    pull_into_cache(registry, second, cache)
    assert (path / "profile.json").read_bytes() == b"tuned here"
    assert [entry.name for entry in path.parent.iterdir() if ".json" in entry.name] == [
        f"{path.name}.documents.json"
    ]


def test_the_log_tells_who_pushed_what(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "1.0")
    promote(registry, "1.0")
    pushed, moved = registry.events(NAME)

    assert (pushed.kind, pushed.version, pushed.actor) == (EventKind.PUSH, "1.0", ACTOR)
    assert pushed.id == moved.id == fake(tmp_path, "1.0").artifact_id
    assert (moved.kind, moved.channel, moved.seq) == (EventKind.PROMOTE, "prod", 2)
    record = json.loads(registry.storage.read(paths.channel(NAME, "prod")) or b"")
    assert record == {"id": pushed.id, "version": "1.0", "event": 2}


def test_folders_of_a_killed_first_push_are_no_damage(registry: Registry, tmp_path: Path) -> None:
    """Its event was never written; a log that was emptied is another thing."""
    log = tmp_path / "registry" / paths.log(NAME)
    log.mkdir(parents=True)
    assert damage_of(registry) == {}
    push(registry, tmp_path, "1.0")
    (log / "0000000001.json").unlink()
    assert paths.log(NAME) in damage_of(registry)
