"""The same storage at every kind of place."""

import secrets
from collections.abc import Callable, Iterator

import pytest

from infinity_v3.artifacts.registry.fsspec_storage import FsspecStorage
from infinity_v3.artifacts.registry.local_storage import LocalStorage
from infinity_v3.artifacts.registry.storage import RegistryStorage
from s3_server import s3_server

PLACES = ("directory", "file", "memory", "s3")


@pytest.fixture(scope="session")
def s3_bucket() -> Iterator[str]:
    """The URL of a bucket that all tests share."""
    with s3_server() as url:
        yield url


@pytest.fixture(params=PLACES)
def new_storage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], RegistryStorage]:
    """Call it for a storage in a place where nothing lies yet."""
    kind = request.param
    folder = tmp_path_factory.mktemp("storages")
    if kind == "directory":
        return lambda: LocalStorage(folder / secrets.token_hex(4))
    base = {"file": f"file://{folder}", "memory": f"memory://{secrets.token_hex(4)}"}.get(kind)
    url = base or request.getfixturevalue("s3_bucket")
    return lambda: FsspecStorage(f"{url}/{secrets.token_hex(4)}")


@pytest.fixture
def storage(new_storage: Callable[[], RegistryStorage]) -> RegistryStorage:
    """An empty storage."""
    return new_storage()
