"""A log is one chain, whoever writes to it at the same time."""

import hashlib
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.registry import paths
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.registry import Registry
from registries import NAME, damage_of, new_registry, promote, push

NUM_WRITERS = 6


class RacedStorage(LocalStorage):
    """Another writer is first, once, behind this one's back; and there is no lock."""

    def __init__(self, root: Path, rival: Registry, folder: Path) -> None:
        super().__init__(root)
        self.lock = nullcontext  # type: ignore[assignment, method-assign]
        self._rival: Registry | None = rival
        self._folder = folder

    def create(self, path: str, data: bytes) -> bool:
        if path.startswith(paths.log(NAME)) and self._rival is not None:
            rival, self._rival = self._rival, None
            push(rival, self._folder, "rival")
        return super().create(path, data)


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    registry = new_registry(tmp_path / "registry")
    push(registry, tmp_path, "1")
    return registry


def test_events_hold_the_digest_of_the_one_before(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "2")
    promote(registry, "2")
    files = [(registry.storage.read(paths.event(NAME, seq)) or b"") for seq in (1, 2, 3)]
    expected = [None, *(hashlib.sha256(data).hexdigest() for data in files[:2])]
    assert [event.previous for event in registry.events(NAME)] == expected
    assert [event.seq for event in registry.events(NAME)] == [1, 2, 3]


def test_who_loses_a_race_is_next(registry: Registry, tmp_path: Path) -> None:
    storage = RacedStorage(tmp_path / "registry", Registry(registry.storage), tmp_path)
    report = push(Registry(storage), tmp_path, "2")
    assert report.event == 3
    assert [event.version for event in registry.events(NAME)] == ["1", "rival", "2"]
    assert damage_of(registry) == {}


def test_many_writers_at_once_make_one_chain(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "2")

    def write(index: int) -> None:
        own = Registry(LocalStorage(tmp_path / "registry"))
        promote(own, "1" if index % 2 else "2", channel=f"channel-{index % 3}")

    threads = [threading.Thread(target=write, args=(index,)) for index in range(NUM_WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(registry.events(NAME))) == 2 + NUM_WRITERS
    assert damage_of(registry) == {}


def test_a_missing_event_is_named(registry: Registry, tmp_path: Path) -> None:
    push(registry, tmp_path, "2")
    push(registry, tmp_path, "3")
    registry.storage.delete(paths.event(NAME, 2))
    with pytest.raises(RefusedError, match=r"log/0000000002\.json: expected every event of the"):
        list(Registry(registry.storage).events(NAME))


def test_a_log_that_was_seen_longer_is_refused(registry: Registry, tmp_path: Path) -> None:
    """As by a server that watches a channel."""
    push(registry, tmp_path, "2")
    assert len(list(registry.events(NAME))) == 2
    registry.storage.delete(paths.event(NAME, 2))
    with pytest.raises(RefusedError, match=r"log/0000000002\.json: the log was cut off"):
        registry.versions(NAME)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b'"seq":1', b'"seq":2', "expected event 1, found 2"),
        (b'"name":"fake-encoder"', b'"name":"other"', "expected an event of fake-encoder"),
        (b'"version":"1"', b'"version":"../1"', "expected a version"),
        (b'"id":"sha256:', b'"id":"sha512:', "expected an artifact id"),
        (b'"channel":null', b'"channel":"prod"', "a channel does not fit a push"),
        (b'"kind":"push"', b'"kind":"pull"', "kind: expected one of push, promote"),
        (b'"notes":', b'"note":', "note: unknown key"),
        (b"\n", b" \n", "expected canonical JSON"),
    ],
)
def test_what_is_no_event_of_this_place_is_refused(
    registry: Registry, before: bytes, after: bytes, words: str
) -> None:
    path = paths.event(NAME, 1)
    data = registry.storage.read(path) or b""
    assert before in data
    registry.storage.replace(path, data.replace(before, after))
    with pytest.raises(RefusedError, match=rf"{path}: .*{words}"):
        list(Registry(registry.storage).events(NAME))
