"""What only stores behind a URL can do wrong: no conditions, no network, no package, secrets."""

import secrets
import socket

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from infinity_v3.artifacts.errors import InfinityError, RefusedError, RunFailedError, UsageError
from infinity_v3.artifacts.registry.fsspec_storage import FsspecStorage
from infinity_v3.artifacts.registry.marker import create_registry
from infinity_v3.artifacts.registry.object_writers import ConditionalWriter, S3Writer
from infinity_v3.artifacts.registry.registry import Registry
from registries import POLICY
from s3_server import SECRET


class UnconditionalFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A store of an unknown kind."""

    protocol = "unconditional"


class CarelessFileSystem(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Takes the condition and ignores it, as older servers that speak S3 do."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: object) -> None:
        super().pipe_file(path, value)


@pytest.fixture
def unconditional() -> str:
    fsspec.register_implementation("unconditional", UnconditionalFileSystem, clobber=True)
    return f"unconditional://{secrets.token_hex(4)}"


def test_without_conditional_writes_nothing_is_created(unconditional: str) -> None:
    storage = FsspecStorage(unconditional)
    assert not storage.has_conditional_writes
    with pytest.raises(RefusedError, match="pass --unsafe-channel-writes"):
        storage.create("names/a/log/0000000001.json", b"-")
    assert storage.list("") == ()
    storage.replace("blobs/sha256/00", b"blob")
    assert storage.read("blobs/sha256/00") == b"blob"


def test_it_is_created_where_the_user_knows_better(unconditional: str) -> None:
    storage = FsspecStorage(unconditional, unsafe_channel_writes=True)
    assert not storage.has_conditional_writes
    assert storage.create("registry.json", b"first")
    assert not storage.create("registry.json", b"second")
    assert storage.read("registry.json") == b"first"


def test_a_store_that_ignores_the_condition_is_found_out() -> None:
    fs = CarelessFileSystem()
    root = f"/{secrets.token_hex(4)}"
    writer = ConditionalWriter(fs, root, location="s3://bucket", witness="registry.json")
    # Nothing is there yet that could be overwritten.
    assert writer.create("registry.json", b"marker")
    with pytest.raises(RefusedError, match="s3://bucket: expected a store that refuses"):
        writer.create("names/a/log/0000000001.json", b"-")
    assert fs.cat_file(f"{root}/registry.json") == b"marker"
    assert not fs.exists(f"{root}/names")


def test_a_write_whose_answer_was_lost_is_known_again(s3_bucket: str) -> None:
    storage = FsspecStorage(f"{s3_bucket}/{secrets.token_hex(4)}")
    fs = storage._fs

    class Repeating:
        """Sends each request twice, as a client does that saw no answer to the first."""

        def __getattr__(self, name: str) -> object:
            return getattr(fs, name)

        def pipe_file(self, path: str, value: bytes, **options: object) -> None:
            fs.pipe_file(path, value, **options)
            fs.pipe_file(path, value, **options)

    writer = S3Writer(
        Repeating(),  # type: ignore[arg-type]  # the rest goes to the real one
        storage._root,
        location=s3_bucket,
        witness="registry.json",
    )
    assert writer.create("names/a/log/0000000001.json", b"own")
    assert not writer.create("names/a/log/0000000001.json", b"own")
    assert storage.read("names/a/log/0000000001.json") == b"own"


def test_a_registry_is_made_in_a_bucket(s3_bucket: str) -> None:
    location = f"{s3_bucket}/{secrets.token_hex(4)}"
    create_registry(FsspecStorage(location), POLICY)
    registry = Registry(FsspecStorage(f"{location}/"))
    assert registry.location == location
    assert registry.names() == ()
    assert registry.policy_text() == POLICY.encode()


def test_an_absent_bucket_is_named(s3_bucket: str) -> None:
    storage = FsspecStorage("s3://no-such-bucket/registry")
    with pytest.raises(
        RunFailedError,
        match=r"^cannot write s3://no-such-bucket/registry/policy.toml: .*bucket does not exist",
    ):
        storage.replace("policy.toml", b"-")


def test_a_server_that_is_down_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    fsspec.filesystem("s3").clear_instance_cache()
    try:
        with pytest.raises(RunFailedError) as failure:
            FsspecStorage("s3://bucket/registry").read("registry.json")
    finally:
        fsspec.filesystem("s3").clear_instance_cache()
    message = str(failure.value)
    assert message.startswith("cannot read s3://bucket/registry/registry.json: Could not connect")
    assert SECRET not in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("location", "package"),
    [("gs://bucket/registry", "gcsfs"), ("abfs://container/registry", "adlfs")],
)
def test_a_missing_package_is_named(location: str, package: str) -> None:
    with pytest.raises(UsageError, match=f"run `pip install {package}`"):
        FsspecStorage(location)


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("nonsense://x", "unknown protocol 'nonsense'"),
        ("simplecache::s3://bucket/registry", "found a chain"),
    ],
)
def test_other_urls_are_no_locations(location: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        FsspecStorage(location)


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        ("memory://user:hidden@host/registry?token=hidden", "memory://host/registry"),
        ("memory://host/registry/", "memory://host/registry"),
        ("nonsense://user:hidden@host/registry?token=hidden", "nonsense://host/registry"),
    ],
)
def test_credentials_are_never_shown(location: str, shown: str) -> None:
    try:
        text = FsspecStorage(location).location
    except InfinityError as error:
        text = str(error)
    assert text == shown or text.startswith(f"{shown}: ")
    assert "hidden" not in text


def test_credentials_in_reasons_are_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = FsspecStorage(f"memory://{secrets.token_hex(4)}")

    def fail(*_: object, **__: object) -> None:
        raise OSError("GET https://me:hidden@host/x?signature=hidden failed\nmore lines")

    monkeypatch.setattr(storage._fs, "info", fail)
    with pytest.raises(RunFailedError) as failure:
        storage.read("registry.json")
    message = str(failure.value)
    assert "GET https://host/x failed (OSError); check the address" in message
    assert "hidden" not in message
    assert "more lines" not in message
