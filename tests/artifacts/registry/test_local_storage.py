"""What only a directory can do wrong: links, modes, kills, file systems that lack something."""

import errno
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import RefusedError, RunFailedError
from infinity_v3.artifacts.registry import staged_file
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from registries import files_below


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "registry")


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


@pytest.mark.parametrize("folder", ["names", "names/a", "names/a/log"])
def test_links_below_the_root_are_not_followed(
    storage: LocalStorage, tmp_path: Path, folder: str
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "a/log").mkdir(parents=True)
    (elsewhere / "log").mkdir()
    link = tmp_path / "registry" / folder
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    path = "names/a/log/1.json"
    for act in (
        lambda: storage.read(path),
        lambda: storage.size(path),
        lambda: storage.list("names/a/log"),
        lambda: storage.create(path, b"-"),
        lambda: storage.replace(path, b"-"),
        lambda: storage.delete(path),
        lambda: storage.upload(path, Path(__file__)),
        lambda: storage.download(path, tmp_path / "out"),
    ):
        with pytest.raises(RefusedError, match="a registry holds no links"):
            act()
    assert [path for path in elsewhere.rglob("*") if path.is_file()] == []


def test_a_file_that_is_a_link_is_not_read(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "registry/policy.toml").symlink_to(tmp_path / "secret")
    with pytest.raises(RefusedError, match="a registry holds no links"):
        storage.read("policy.toml")
    # Replacing takes the link's place and leaves alone what it pointed to.
    storage.replace("policy.toml", b"new")
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert storage.read("policy.toml") == b"new"


def test_a_pipe_does_not_block(storage: LocalStorage, tmp_path: Path) -> None:
    (tmp_path / "registry").mkdir()
    os.mkfifo(tmp_path / "registry/policy.toml")
    with pytest.raises(RefusedError, match="expected regular files"):
        storage.read("policy.toml")


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "names/../../out", "", ".tmp/x", "a//b"])
def test_no_path_leaves_the_root(storage: LocalStorage, path: str) -> None:
    with pytest.raises(RefusedError, match="expected a path of the registry's own files"):
        storage.replace(path, b"-")
    with pytest.raises(RefusedError, match="expected a path of the registry's own files"):
        storage.read(path)


def test_the_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "registry").symlink_to(tmp_path / "disk")
    assert LocalStorage(tmp_path / "registry").create("names/a", b"-")
    assert (tmp_path / "disk/names/a").read_bytes() == b"-"


@pytest.mark.usefixtures("umask")
def test_modes_follow_the_umask(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("names/a/created", b"-")
    storage.replace("names/a/replaced", b"-")
    storage.upload("names/a/uploaded", Path(__file__))
    for path in (tmp_path / "registry").rglob("*"):
        expected = 0o750 if path.is_dir() else 0o640
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_a_failed_write_leaves_nothing(storage: LocalStorage, tmp_path: Path) -> None:
    storage.replace("policy.toml", b"old")
    with pytest.raises(RunFailedError, match="cannot read"):
        storage.upload("policy.toml", tmp_path)
    assert storage.read("policy.toml") == b"old"
    assert list((tmp_path / "registry/.tmp").iterdir()) == []


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = LocalStorage(tmp_path / "file/registry")
    with pytest.raises((RunFailedError, RefusedError), match=str(tmp_path / "file/registry/top")):
        storage.replace("top", b"-")


def test_temporaries_of_the_dead_are_removed(storage: LocalStorage, tmp_path: Path) -> None:
    storage.create("top", b"-")
    old, young = tmp_path / "registry/.tmp/old", tmp_path / "registry/.tmp/young"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    assert storage.list("") == ("top",)
    assert storage.remove_stale_temporaries(10_000) == 0
    # A writer that lives may be about to rename the young one.
    assert storage.remove_stale_temporaries(0) == 1
    assert (old.exists(), young.exists()) == (False, True)
    assert [path.name for path in files_below(tmp_path / "registry")] == ["top"]


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_without_hard_links_a_rename_creates(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", no_links)
    # Not found by a look before: the rename itself has to refuse.
    monkeypatch.setattr(LocalStorage, "size", lambda *_: None)
    assert storage.create("names/a", b"first")
    assert not storage.create("names/a", b"second")
    assert storage.read("names/a") == b"first"


def test_a_file_system_that_creates_nothing_exclusively_is_named(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(os, "link", no_links)
    monkeypatch.setattr(staged_file, "rename_noreplace", lambda *_, **__: errno.EINVAL)
    with pytest.raises(RunFailedError, match="neither hard links nor exclusive renames"):
        storage.create("names/a", b"-")
    assert storage.read("names/a") is None
