"""What every storage owes, on a directory, a file URL, memory and an S3 server."""

import hashlib
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.registry.storage import MAX_READ_BYTES, RegistryStorage

BLOCK = 16 << 20
NewStorage = Callable[[], RegistryStorage]

few_examples = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def test_absent_is_never_an_error(storage: RegistryStorage, tmp_path: Path) -> None:
    assert storage.read("names/a/log/0000000001.json") is None
    assert storage.size("registry.json") is None
    assert storage.modified_s("registry.json") is None
    assert storage.digest("blobs/sha256/00") is None
    assert storage.download("blobs/sha256/00", tmp_path / "out") is None
    assert not (tmp_path / "out").exists()
    assert storage.list("") == ()
    assert storage.list("names") == ()
    storage.delete("names/a/log/0000000001.json")
    assert storage.remove_stale_temporaries(0) == 0


def test_a_file_is_created_once(storage: RegistryStorage) -> None:
    before_s = time.time()
    assert storage.create("names/a/log/0000000001.json", b"first")
    assert not storage.create("names/a/log/0000000001.json", b"second")
    assert not storage.create("names/a/log/0000000001.json", b"first")
    assert storage.read("names/a/log/0000000001.json") == b"first"
    assert storage.size("names/a/log/0000000001.json") == 5
    modified_s = storage.modified_s("names/a/log/0000000001.json")
    assert modified_s is not None
    assert before_s - 2 <= modified_s <= time.time() + 2


def test_a_file_is_replaced_and_deleted(storage: RegistryStorage) -> None:
    storage.replace("policy.toml", b"one")
    storage.replace("policy.toml", b"")
    assert storage.read("policy.toml") == b""
    assert storage.size("policy.toml") == 0
    storage.delete("policy.toml")
    assert storage.read("policy.toml") is None
    assert storage.create("policy.toml", b"again")


def test_folders_list_what_is_directly_in_them(storage: RegistryStorage) -> None:
    for path in ("names/b/log/2.json", "names/a/log/1.json", "names/b.json", "names/b/x", "top"):
        assert storage.create(path, b"-")
    assert storage.list("") == ("names", "top")
    assert storage.list("names") == ("a", "b", "b.json")
    assert storage.list("names/b") == ("log", "x")
    assert storage.list("names/b/log") == ("2.json",)
    assert storage.list("names/c") == ()


def test_a_folder_is_no_file(storage: RegistryStorage, tmp_path: Path) -> None:
    storage.create("names/a/log/1.json", b"-")
    assert storage.read("names/a") is None
    assert storage.size("names/a") is None
    assert storage.digest("names/a") is None
    assert storage.download("names/a", tmp_path / "out") is None


@pytest.mark.parametrize("num_bytes", [0, 1, 2 * BLOCK + 3])
def test_large_files_come_and_go_whole(
    storage: RegistryStorage, tmp_path: Path, num_bytes: int
) -> None:
    data = (b"0123456789abcdef" * (num_bytes // 16 + 1))[:num_bytes]
    expected = hashlib.sha256(data).hexdigest()
    (tmp_path / "source").write_bytes(data)
    storage.upload("blobs/sha256/ab", tmp_path / "source")
    storage.upload("blobs/sha256/ab", tmp_path / "source")
    assert storage.size("blobs/sha256/ab") == num_bytes
    assert storage.digest("blobs/sha256/ab") == expected
    assert storage.download("blobs/sha256/ab", tmp_path / "target") == expected
    assert (tmp_path / "target").read_bytes() == data


def test_a_download_overwrites_nothing(storage: RegistryStorage, tmp_path: Path) -> None:
    storage.replace("blobs/sha256/ab", b"new")
    (tmp_path / "target").write_bytes(b"old")
    with pytest.raises(RunFailedError, match=r"cannot write .*target: file exists"):
        storage.download("blobs/sha256/ab", tmp_path / "target")
    assert (tmp_path / "target").read_bytes() == b"old"


def test_an_absent_source_is_named(storage: RegistryStorage, tmp_path: Path) -> None:
    with pytest.raises(RunFailedError, match=r"cannot read .*absent: no such file"):
        storage.upload("blobs/sha256/ab", tmp_path / "absent")
    assert storage.list("blobs/sha256") == ()


def test_only_small_files_are_read_at_once(storage: RegistryStorage, tmp_path: Path) -> None:
    with (tmp_path / "source").open("wb") as file:
        file.truncate(MAX_READ_BYTES + 1)
    storage.upload("blobs/sha256/ab", tmp_path / "source")
    with pytest.raises(RefusedError, match="expected at most 67108864 bytes"):
        storage.read("blobs/sha256/ab")


def test_one_of_many_creators_wins(storage: RegistryStorage) -> None:
    num_writers = 8
    start = threading.Barrier(num_writers)

    def create(index: int) -> bool:
        start.wait()
        return storage.create("names/a/log/0000000001.json", b"%d" % index)

    with ThreadPoolExecutor(num_writers) as pool:
        results = list(pool.map(create, range(num_writers)))
    assert results.count(True) == 1
    assert storage.read("names/a/log/0000000001.json") == b"%d" % results.index(True)


PATHS = st.sampled_from(("a/1", "a/2", "b/c/1", "b/c/2", "top"))
DATA = st.binary(max_size=20)


@dataclass(frozen=True)
class Step:
    action: str
    path: str
    data: bytes = b""


STEPS = st.one_of(
    st.builds(Step, st.sampled_from(("create", "replace")), PATHS, DATA),
    st.builds(Step, st.sampled_from(("delete", "read", "size")), PATHS),
)


def expected_result(model: dict[str, bytes], step: Step) -> object:
    """Do one step on the model; returns what a storage must return."""
    found = model.get(step.path)
    if step.action == "read":
        return found
    if step.action == "size":
        return None if found is None else len(found)
    if step.action == "delete":
        model.pop(step.path, None)
        return None
    if step.action == "create" and found is not None:
        return False
    model[step.path] = step.data
    return True if step.action == "create" else None


def result(storage: RegistryStorage, step: Step) -> object:
    arguments = (step.data,) if step.action in ("create", "replace") else ()
    return getattr(storage, step.action)(step.path, *arguments)


def files_below(storage: RegistryStorage, folder: str = "") -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for name in storage.list(folder):
        path = f"{folder}/{name}".lstrip("/")
        data = storage.read(path)
        found.update(files_below(storage, path) if data is None else {path: data})
    return found


@few_examples
@given(steps=st.lists(STEPS, max_size=12))
def test_it_is_a_dictionary(new_storage: NewStorage, steps: Sequence[Step]) -> None:
    storage = new_storage()
    model: dict[str, bytes] = {}
    for step in steps:
        assert result(storage, step) == expected_result(model, step)
    assert files_below(storage) == model


@few_examples
@given(
    created=st.lists(PATHS, min_size=2, max_size=6),
    replaced=st.lists(st.sampled_from(("r/1", "r/2")), max_size=6),
)
def test_it_is_a_dictionary_for_many_at_once(
    new_storage: NewStorage, created: Sequence[str], replaced: Sequence[str]
) -> None:
    storage = new_storage()
    num_writers = 3
    start = threading.Barrier(num_writers)
    contents = [b"%d" % index * 1000 for index in range(num_writers)]

    def write(index: int) -> list[tuple[str, bytes]]:
        """Returns what this writer created; what it sees meanwhile is always whole."""
        start.wait()
        own = [(path, contents[index]) for path in created if storage.create(path, contents[index])]
        for path in replaced:
            storage.replace(path, contents[index])
            assert storage.read(path) in contents
            assert path.removeprefix("r/") in storage.list("r")
        return own

    with ThreadPoolExecutor(num_writers) as pool:
        winners = [item for own in pool.map(write, range(num_writers)) for item in own]
    assert sorted(path for path, _ in winners) == sorted(set(created))
    found = files_below(storage)
    assert found.keys() == {*created, *replaced}
    assert {path: found[path] for path in created} == dict(winners)
    assert all(found[path] in contents for path in replaced)
