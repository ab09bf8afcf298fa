"""Channels follow the log; resolving, moving, going back and taking back."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.channels import ChannelState
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.moves import ChannelMove
from infinity_v3.artifacts.registry.records import ChannelRecord, EventKind, decode_record
from infinity_v3.artifacts.registry.registry import Registry
from registries import (
    ACTOR,
    NAME,
    StoppedError,
    StoppingStorage,
    checked,
    damage_of,
    fake,
    new_registry,
    promote,
    push,
    resolve,
)

PROD = paths.channel(NAME, "prod")


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    """Versions 1, 2 and 3; prod points to 1, then 2."""
    registry = new_registry(tmp_path / "registry")
    for version in ("1", "2", "3"):
        push(registry, tmp_path, version)
    promote(registry, "1")
    promote(registry, "2")
    return registry


def channel_file(registry: Registry) -> ChannelRecord:
    return decode_record(registry.storage.read(PROD) or b"", ChannelRecord, PROD)


def go_back(registry: Registry) -> str:
    """What `registry rollback` does without --to."""
    version, _ = registry.places_before(NAME, "prod")[-1]
    return promote(registry, version, kind=EventKind.ROLLBACK).version


def test_every_form_of_reference_is_resolved(registry: Registry, tmp_path: Path) -> None:
    third = fake(tmp_path, "3").artifact_id
    assert resolve(registry, NAME).version == "2"
    assert resolve(registry, f"{NAME}:prod").event == registry.event(NAME, 5)
    by_version = resolve(registry, f"{NAME}==3")
    assert (by_version.id, by_version.channel, by_version.event) == (third, None, None)
    assert resolve(registry, f"{NAME}@{third}") == by_version


def test_a_bare_name_is_its_only_version_where_there_is_no_prod(tmp_path: Path) -> None:
    registry = new_registry(tmp_path / "registry")
    push(registry, tmp_path, "1")
    promote(registry, "1", channel="staging")
    assert resolve(registry, NAME).version == "1"
    push(registry, tmp_path, "2")
    with pytest.raises(RefusedError) as refusal:
        resolve(registry, NAME)
    assert str(refusal.value) == (
        "fake-encoder: expected a channel prod or a single version, found 2 versions; give "
        "name:channel or name==version; versions: 2, 1; channels: staging"
    )


def test_an_id_of_several_versions_is_the_newest_of_them(
    registry: Registry, tmp_path: Path
) -> None:
    registry.push(fake(tmp_path, "1"), "1-again", actor=ACTOR)
    assert resolve(registry, f"{NAME}@{fake(tmp_path, '1').artifact_id}").version == "1-again"


@pytest.mark.parametrize(
    ("reference", "words"),
    [
        ("fake-encode", "no such name in {place}; did you mean fake-encoder?; names here: fake-en"),
        (f"{NAME}:pord", "fake-encoder:pord: no such channel; channels: prod"),
        (f"{NAME}==4", "fake-encoder==4: no such version; versions: 3, 2, 1"),
        (f"{NAME}@sha256:{'0' * 64}", "no version has this id; versions: 3, 2, 1"),
    ],
)
def test_what_is_not_there_is_answered_by_what_is(
    registry: Registry, reference: str, words: str
) -> None:
    with pytest.raises(RefusedError) as refusal:
        resolve(registry, reference)
    assert words.format(place=registry.location) in str(refusal.value)


def test_a_manifest_of_another_name_is_refused(registry: Registry, tmp_path: Path) -> None:
    """As if someone had copied one name's folder to another."""
    folder = tmp_path / "registry" / "names"
    (folder / NAME).rename(folder / "other")
    log = folder / "other" / "log"
    for path in log.iterdir():
        path.write_bytes(path.read_bytes().replace(b'"name":"fake-encoder"', b'"name":"other"'))
    with pytest.raises(RefusedError, match="expected the manifest of other, found one of fake-enc"):
        resolve(registry, "other==1")


def test_a_killed_move_counts_and_the_next_writer_completes_it(
    registry: Registry, tmp_path: Path
) -> None:
    storage = StoppingStorage(LocalStorage(tmp_path / "registry"), 1)
    with pytest.raises(StoppedError):
        promote(Registry(storage), "3")
    assert channel_file(registry).version == "2"

    assert resolve(registry, NAME).version == "3"
    assert damage_of(registry) == {}
    assert [finding.path for finding in checked(registry).notes] == [PROD]

    push(registry, tmp_path, "4")
    assert channel_file(registry).version == "3"
    assert checked(registry).notes == ()


def test_a_killed_first_move_of_a_channel_counts(registry: Registry, tmp_path: Path) -> None:
    storage = StoppingStorage(LocalStorage(tmp_path / "registry"), 1)
    with pytest.raises(StoppedError):
        promote(Registry(storage), "3", channel="staging")
    assert [state.channel for state in registry.channels(NAME)] == ["prod", "staging"]
    assert resolve(registry, f"{NAME}:staging").version == "3"
    assert damage_of(registry) == {}


def test_a_move_is_refused_where_another_came_since_the_gates_ran(
    registry: Registry, tmp_path: Path
) -> None:
    seen = registry.channel(NAME, "prod")

    def order(against: ChannelState) -> ChannelMove:
        return ChannelMove(
            name=NAME,
            channel="prod",
            version="3",
            id=fake(tmp_path, "3").artifact_id,
            kind=EventKind.PROMOTE,
            actor=ACTOR,
            against=against,
        )

    promote(registry, "1")
    with pytest.raises(RefusedError, match=r"another move came while the gates ran \(event 6\)"):
        registry.move_channel(order(seen))
    assert resolve(registry, NAME).version == "1"
    assert registry.move_channel(order(registry.channel(NAME, "prod"))).replaced_version == "1"


def test_a_move_to_another_id_than_the_version_has_is_refused(registry: Registry) -> None:
    order = ChannelMove(
        name=NAME,
        channel="prod",
        version="3",
        id=f"sha256:{'0' * 64}",
        kind=EventKind.PROMOTE,
        actor=ACTOR,
    )
    with pytest.raises(RefusedError, match=r"fake-encoder==3: expected sha256:0+, found sha256:"):
        registry.move_channel(order)
    assert len(list(registry.events(NAME))) == 5


def test_going_back_again_goes_further_back(registry: Registry) -> None:
    promote(registry, "3")
    assert [go_back(registry), go_back(registry)] == ["2", "1"]
    assert registry.places_before(NAME, "prod") == ()
    promote(registry, "3")
    assert go_back(registry) == "1"


def test_what_was_gone_to_twice_counts_once(registry: Registry) -> None:
    promote(registry, "2")
    promote(registry, "2")
    assert go_back(registry) == "1"


def test_going_back_passes_over_retired_versions(registry: Registry) -> None:
    promote(registry, "3")
    registry.retire(NAME, "2", actor=ACTOR)
    assert go_back(registry) == "1"


def test_a_version_that_a_channel_points_to_is_not_retired(registry: Registry) -> None:
    with pytest.raises(RefusedError) as refusal:
        registry.retire(NAME, "2", actor=ACTOR)
    assert str(refusal.value) == (
        "fake-encoder==2: expected a version that no channel points to, found prod; move it first"
    )
    registry.retire(NAME, "1", actor=ACTOR)
    with pytest.raises(RefusedError, match=r"retired on 20\d\d-.*Z \(event 6\); versions: 3, 2$"):
        resolve(registry, f"{NAME}==1")


def test_a_killed_retirement_counts(registry: Registry, tmp_path: Path) -> None:
    storage = StoppingStorage(LocalStorage(tmp_path / "registry"), 1)
    with pytest.raises(StoppedError):
        Registry(storage).retire(NAME, "1", actor=ACTOR)
    path = paths.version(NAME, "1")
    assert registry.storage.size(path) is not None
    assert list(registry.versions(NAME)) == ["2", "3"]
    assert damage_of(registry) == {}
    promote(registry, "3")
    assert registry.storage.size(path) is None


def test_a_channel_never_moves_backwards_behind_a_cut_off_log(
    registry: Registry, tmp_path: Path
) -> None:
    """What the file names was acknowledged; nobody writes over it because the log lost it."""
    before = registry.storage.read(PROD)
    registry.storage.delete(paths.event(NAME, 5))
    seen_now = Registry(registry.storage)
    for version in ("1", "4"):
        with pytest.raises(RefusedError, match="names event 5, which the log does not have"):
            push(seen_now, tmp_path, version)
    assert registry.storage.read(PROD) == before
    assert PROD in damage_of(registry)
