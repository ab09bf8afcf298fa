"""Real servers that follow a channel of a real registry: every swap, and everything that stops one.

The two versions differ in their weights, so an answer tells which of them has computed it.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from channel_kit import LocalRegistry, make_keys, renamed
from fake_artifact import make_target, write_fake_artifact
from http_client import HttpClient
from http_process import descendants
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Graph, Heads, Kind, Requirements, TensorSpec
from infinity_v3.artifacts.store import open_artifact
from scrape import counts, gauges
from server_process import ServerProcess
from swap_load import SwapLoad, Vectors, vectors_of
from tampering import replace_file
from tiny_artifacts import TinyArtifact

NAME = "tiny"
NUM_MOVES_UNDER_LOAD = 8
NUM_SWAPS = 20
MAX_GROWTH_BYTES = 10_000_000
WAIT_S = 15.0
BLOCKED = ("torch", "transformers", "safetensors", "huggingface_hub", "numpy", "tokenizers")
WITHOUT_EXTRA = """
import sys
sys.modules.update(dict.fromkeys({blocked!r}))
from infinity_v3.compiler.cli import main
sys.argv = ["infinity-compile", *sys.argv[1:]]
main()
"""


@dataclass(frozen=True, kw_only=True)
class Versions:
    """Two artifacts of one name in a registry."""

    registry: LocalRegistry
    folders: dict[str, Path]
    ids: dict[str, str]

    def options(self, cache: Path, *more: str) -> list[str]:
        place = ["--registry", self.registry.location, "--artifact-cache", str(cache)]
        return [*place, "--watch-channel", "--watch-interval", "0.05", *more]


@pytest.fixture(scope="module")
def versions(
    tmp_path_factory: pytest.TempPathFactory, small: TinyArtifact, other: TinyArtifact
) -> Versions:
    root = tmp_path_factory.mktemp("versions")
    registry = LocalRegistry.make(root / "registry")
    folders = {
        version: renamed(tiny.artifact, root / version, NAME)
        for version, tiny in (("1", small), ("2", other))
    }
    ids = {version: registry.push(folder, version) for version, folder in folders.items()}
    registry.move(NAME, "1")
    return Versions(registry=registry, folders=folders, ids=ids)


@pytest.fixture(scope="module")
def server(versions: Versions, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    cache = tmp_path_factory.mktemp("cache") / "own"
    with ServerProcess(f"{NAME}:prod", *versions.options(cache, "--json-output")) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(server.base_url) as client:
        yield client


def info(client: HttpClient) -> Any:  # noqa: ANN401  # a document
    return client.get("/info").json()


def wait_until(what: str, is_true: Callable[[], object]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not is_true():
        assert time.monotonic() < deadline_s, f"{what} did not happen"
        time.sleep(0.005)


def move(versions: Versions, client: HttpClient, version: str) -> None:
    """Move the channel and wait until the server serves what it points to."""
    event = versions.registry.move(NAME, version)
    wait_until(
        f"the swap to version {version}",
        lambda: info(client)["registry"]["event"] == event.seq,
    )
    assert info(client)["artifact"]["id"] == versions.ids[version]


def swaps(client: HttpClient, result: str) -> float:
    text = client.get("/metrics").body.decode()
    return counts(text)[f'infinity_channel_swaps_total{{model="{NAME}",result="{result}"}}']


def has_failed(client: HttpClient, before: float) -> bool:
    return swaps(client, "failed") > before


def has_answered(load: SwapLoad, num_answers: int) -> bool:
    return load.answers.total() > num_answers


def vectors(versions: Versions, client: HttpClient) -> dict[str, dict[str, Vectors]]:
    """What each version answers, asked while nothing is swapped."""
    found = {}
    for version in ("2", "1"):
        move(versions, client, version)
        found[version] = vectors_of(client)
    return found


def test_no_request_is_lost_or_mixed_while_a_channel_moves(
    versions: Versions, server: ServerProcess, client: HttpClient
) -> None:
    known = vectors(versions, client)
    before = swaps(client, "switched")
    with SwapLoad(base_url=server.base_url, versions=known).running() as load:
        for number in range(NUM_MOVES_UNDER_LOAD):
            answered = load.answers.total()
            move(versions, client, "21"[number % 2])
            wait_until("an answer", partial(has_answered, load, answered + 8))
    assert load.complaints == []
    assert min(load.answers["1"], load.answers["2"]) > NUM_MOVES_UNDER_LOAD
    assert swaps(client, "switched") - before == NUM_MOVES_UNDER_LOAD
    assert swaps(client, "failed") == 0


def test_everything_shows_the_new_artifact(
    versions: Versions, server: ServerProcess, client: HttpClient
) -> None:
    move(versions, client, "2")
    registry = info(client)["registry"]
    event = registry.pop("event")
    assert registry == {
        "reference": f"{NAME}:prod",
        "version": "2",
        "channel": "prod",
        "watched": True,
        "error": None,
        "next": None,
    }
    (entry,) = client.get("/v1/models").json()["data"]  # type: ignore[index]
    assert entry["artifact"]["id"] == versions.ids["2"]
    (model,) = client.get("/status.json").json()["models"]  # type: ignore[index]
    assert (model["artifact"]["id"], model["registry"]["event"]) == (versions.ids["2"], event)
    found = gauges(client.get("/metrics").body.decode())
    assert found[f'infinity_channel_event{{model="{NAME}"}}'] == event
    (shown,) = (name for name in found if name.startswith("infinity_artifact_info"))
    assert versions.ids["2"] in shown
    assert '"event":"swap"' in server.log
    assert '"result":"switched"' in server.log


def test_twenty_swaps_do_not_grow(
    versions: Versions, server: ServerProcess, client: HttpClient
) -> None:
    marks = []
    for number in range(NUM_SWAPS):
        move(versions, client, "12"[number % 2])
        vectors_of(client)
        marks.append(server.rss_bytes)
    warm, *later = marks[5:]
    assert max(later) - warm < MAX_GROWTH_BYTES, marks


def test_a_dead_follower_is_replaced(
    versions: Versions, server: ServerProcess, client: HttpClient
) -> None:
    (follower,) = descendants(server.pid)
    os.kill(follower, signal.SIGKILL)
    wait_until("a word about it", lambda: info(client)["registry"]["error"] is not None)
    move(versions, client, "1")
    move(versions, client, "2")
    assert info(client)["registry"]["error"] is None


def test_a_registry_that_is_away_stops_nothing(
    versions: Versions, server: ServerProcess, client: HttpClient
) -> None:
    root, away = versions.registry.root, versions.registry.root.with_name("away")
    failed = swaps(client, "failed")
    root.rename(away)
    wait_until("a word about it", lambda: info(client)["registry"]["error"] is not None)
    assert "is the place mounted?" in info(client)["registry"]["error"]
    assert len(vectors_of(client)) > 0
    away.rename(root)
    move(versions, client, "1")
    assert info(client)["registry"]["error"] is None
    assert server.log.count("trying again") <= 3
    assert server.log.count(f"channel {NAME}:prod: can be followed again") >= 1
    assert swaps(client, "failed") == failed


def push_broken(versions: Versions, folder: Path) -> None:
    """An artifact whose digests are right and whose engine is no library."""
    renamed(versions.folders["1"], folder, NAME)
    (target,) = open_artifact(folder).manifest.targets
    replace_file(folder, target.entry, b"no library")
    versions.registry.push(folder, "broken")


def push_sparse(versions: Versions, folder: Path) -> None:
    """An artifact of another kind, which this host could run."""
    host = detect_host()
    target = make_target("cpu", requires=Requirements(arch=host.arch, torch=host.torch_minor))
    changes: dict[str, object] = {
        "name": NAME,
        "kind": Kind.SPARSE,
        "targets": (target,),
        "heads": Heads(),
        "graph": _sparse_graph(),
    }
    versions.registry.push(write_fake_artifact(folder, changes), "sparse")


def _sparse_graph() -> Graph:
    return Graph(
        inputs=(
            TensorSpec(name="input_ids", dtype="int64", dims=("T",)),
            TensorSpec(name="cu_seqlens", dtype="int32", dims=("B+1",)),
        ),
        outputs=(TensorSpec(name="sparse", dtype="float32", dims=("B", 100)),),
    )


@pytest.mark.parametrize(
    ("version", "push", "reason"),
    [
        ("broken", push_broken, "cannot be loaded"),
        ("sparse", push_sparse, "expected an artifact of kind embedding, as is served, found"),
    ],
)
def test_what_cannot_take_over_is_not_served(
    versions: Versions,
    client: HttpClient,
    tmp_path: Path,
    version: str,
    push: Callable[[Versions, Path], None],
    reason: str,
) -> None:
    move(versions, client, "2")
    failed = swaps(client, "failed")
    push(versions, tmp_path / "next")
    versions.registry.move(NAME, version)
    wait_until("a failed swap", partial(has_failed, client, failed))
    shown = info(client)
    assert shown["artifact"]["id"] == versions.ids["2"]
    following = shown["registry"]["next"]
    assert (following["version"], following["state"]) == (version, "failed")
    assert reason in following["reason"]
    assert client.get("/ready").status == 200
    assert swaps(client, "failed") == failed + 1
    move(versions, client, "1")
    assert info(client)["registry"]["next"] is None


def test_a_damaged_blob_is_not_served(
    versions: Versions, server: ServerProcess, client: HttpClient, tmp_path: Path
) -> None:
    move(versions, client, "2")
    failed = swaps(client, "failed")
    folder = renamed(versions.folders["1"], tmp_path / "damaged", NAME)
    tokenizer = folder / "tokenizer" / "tokenizer.json"
    replace_file(folder, "tokenizer/tokenizer.json", tokenizer.read_bytes() + b"\n")
    entry = open_artifact(folder).file("tokenizer/tokenizer.json")
    versions.registry.push(folder, "damaged")
    blob = versions.registry.blob(entry.sha256)
    blob.chmod(0o600)
    blob.write_bytes(b"something else")
    versions.registry.move(NAME, "damaged")
    wait_until("a refusal", partial(has_failed, client, failed))
    shown = info(client)
    assert shown["artifact"]["id"] == versions.ids["2"]
    assert "tokenizer/tokenizer.json" in shown["registry"]["error"]
    assert "the artifact before is served on" in server.log
    move(versions, client, "1")


def test_sigterm_in_the_middle_of_swaps_loses_nothing(versions: Versions, tmp_path: Path) -> None:
    with ServerProcess(f"{NAME}:prod", *versions.options(tmp_path / "cache")) as server:
        with HttpClient(server.base_url) as client:
            known = vectors(versions, client)
        (follower,) = descendants(server.pid)
        load = SwapLoad(base_url=server.base_url, versions=known)
        with load.running():
            wait_until("an answer", lambda: load.answers.total() > 8)
            versions.registry.move(NAME, "2")
            assert server.stop() == 0
        assert_only_turned_away(load)
        wait_until("the end of the follower", lambda: not Path(f"/proc/{follower}").exists())


def test_a_follower_that_hangs_does_not_keep_its_server(versions: Versions, tmp_path: Path) -> None:
    with ServerProcess(f"{NAME}:prod", *versions.options(tmp_path / "cache")) as server:
        (follower,) = descendants(server.pid)
        # Before it runs its program its parent still waits for it, and it has its parent's words.
        command = Path(f"/proc/{follower}/cmdline")
        program = b"infinity_v3.compiler.cli"
        wait_until("the start of the follower", lambda: program in command.read_bytes())
        os.kill(follower, signal.SIGSTOP)
        status = Path(f"/proc/{follower}/status")
        wait_until("the stop of the follower", lambda: "T (stopped)" in status.read_text())
        assert server.stop() == 0
        assert "infinity-compile is killed: it did not stop in 1 s" in server.log
        wait_until("the end of the follower", lambda: not Path(f"/proc/{follower}").exists())


def assert_only_turned_away(load: SwapLoad) -> None:
    """Once the drain has begun requests are refused, and later nobody listens; nothing else."""
    allowed = ("503", "ConnectionRefused", "RemoteDisconnected", "ConnectionReset", "BrokenPipe")
    odd = [one for one in load.complaints if not any(word in one for word in allowed)]
    assert odd == []


def test_the_follower_ends_with_its_server(versions: Versions, tmp_path: Path) -> None:
    with ServerProcess(f"{NAME}:prod", *versions.options(tmp_path / "cache")) as server:
        (follower,) = descendants(server.pid)
        server.process.kill()
        server.process.wait(10)
        wait_until("the end of the follower", lambda: not Path(f"/proc/{follower}").exists())


def test_two_servers_start_from_one_cache(versions: Versions, tmp_path: Path) -> None:
    servers = [
        ServerProcess(f"{NAME}==1", "--registry", versions.registry.location, "--artifact-cache", c)
        for c in [str(tmp_path / "cache")] * 2
    ]
    try:
        for server in servers:
            server.start()
        for server in servers:
            server.wait_until_ready()
            assert server.get("/info").json()["registry"]["version"] == "1"  # type: ignore[index]
        folders = [path for path in (tmp_path / "cache" / "pulled").iterdir() if path.is_dir()]
        assert [path.name for path in folders] == [versions.ids["1"].removeprefix("sha256:")]
    finally:
        for server in servers:
            server.kill()


def test_signatures_that_are_asked_for(
    versions: Versions, tmp_path: Path, small: TinyArtifact
) -> None:
    keys = make_keys(tmp_path)
    signed = LocalRegistry.make(tmp_path / "registry", keys.signer)
    unsigned = LocalRegistry(root=signed.root)
    signed.push(versions.folders["1"], "1")
    unsigned.push(versions.folders["2"], "2")
    signed.move(NAME, "1")
    theirs = Versions(registry=signed, folders=versions.folders, ids=versions.ids)
    options = theirs.options(tmp_path / "cache", "--require-signature", str(keys.public))
    with (
        ServerProcess(NAME, *options) as server,
        HttpClient(server.base_url) as client,
    ):
        assert info(client)["registry"]["reference"] == NAME
        for registry, fragment in (
            (signed, "==2: expected a signature by"),
            (unsigned, ".json: expected a valid"),
        ):
            failed = swaps(client, "failed")
            registry.move(NAME, "2" if registry is signed else "1")
            wait_until("a refusal", partial(has_failed, client, failed))
            assert fragment in info(client)["registry"]["error"]
        assert info(client)["artifact"]["id"] == versions.ids["1"]
    refused = start_and_fail(str(small.artifact), "--require-signature", str(keys.public))
    assert refused.returncode == 3
    assert f"expected signatures in {small.artifact}.sig, found no such file" in refused.stderr


def start_and_fail(model: str, *options: str) -> "subprocess.CompletedProcess[str]":
    program = Path(sys.executable).with_name("infinity_v3")
    return subprocess.run(
        [program, "--model-id", model, "--port", "0", "--prometheus-port", "0", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("reference", "fragments"),
    [
        ("tinny:prod", ["no such name", "did you mean tiny?"]),
        ("tiny:stable", ["no such channel", "channels: prod"]),
        ("tiny==9", ["no such version", "versions: "]),
    ],
)
def test_what_a_registry_lacks(
    versions: Versions, tmp_path: Path, reference: str, fragments: list[str]
) -> None:
    place = ("--registry", versions.registry.location, "--artifact-cache", str(tmp_path / "cache"))
    done = start_and_fail(reference, *place)
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: --model-id {reference}: ")
    assert all(fragment in last for fragment in fragments), last


@pytest.mark.parametrize("command", ["pull", "follow"])
def test_the_commands_need_no_compiler(versions: Versions, tmp_path: Path, command: str) -> None:
    options = ["--registry", versions.registry.location, "--cache", str(tmp_path / "cache")]
    # Its standard input has ended before it begins.
    more = ["--until-eof"] if command == "follow" else []
    done = subprocess.run(
        [
            *(sys.executable, "-c", WITHOUT_EXTRA.format(blocked=BLOCKED)),
            *("registry", command, f"{NAME}:prod", *options, "--json", *more),
        ],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f'"name": "{NAME}"' in done.stdout
