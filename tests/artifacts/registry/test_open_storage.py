"""Which storage a location leads to."""

from pathlib import Path

import pytest

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.registry.fsspec_storage import FsspecStorage
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.open_storage import default_location, open_storage


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("/srv/registry", "/srv/registry"),
        ("registry", "{cwd}/registry"),
        ("~/registry", "{home}/registry"),
        ("a:b", "{cwd}/a:b"),
        ("file:///srv/my%20registry", "/srv/my registry"),
        ("file://localhost/srv/registry", "/srv/registry"),
        ("file:/srv/registry", "/srv/registry"),
    ],
)
def test_paths_are_directories(
    location: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    storage = open_storage(location)
    assert isinstance(storage, LocalStorage)
    assert storage.location == expected.format(cwd=tmp_path, home="/home/someone")


def test_urls_go_to_fsspec() -> None:
    storage = open_storage("memory://somewhere", unsafe_channel_writes=True)
    assert isinstance(storage, FsspecStorage)
    assert storage.location == "memory://somewhere"


@pytest.mark.parametrize(
    "location", ["", "file:relative", "file://host/registry", "~nobody-of-this-name/registry"]
)
def test_other_texts_are_refused(location: str) -> None:
    with pytest.raises(UsageError, match="expected"):
        open_storage(location)


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"XDG_DATA_HOME": "/d", "HOME": "/h"}, "/d/infinity_v3/registry"),
        ({"XDG_DATA_HOME": "relative", "HOME": "/h"}, "/h/.local/share/infinity_v3/registry"),
        ({"HOME": "/h"}, "/h/.local/share/infinity_v3/registry"),
    ],
)
def test_a_user_has_a_registry_of_their_own(environ: dict[str, str], expected: str) -> None:
    assert default_location(environ) == expected


def test_without_a_home_a_registry_must_be_named() -> None:
    with pytest.raises(UsageError, match="--registry LOCATION"):
        default_location({"HOME": ""})
