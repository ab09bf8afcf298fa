"""A hub id as `--model-id`, against a hub on loopback: one download, one compile, then neither."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from loopback_hub import LoopbackHub, serving_hub
from server_process import ServerProcess
from tiny_checkpoints import make_tiny_checkpoint

pytestmark = pytest.mark.slow
ID = "org/tiny-distilbert"
FIRST, SECOND = "1" * 40, "2" * 40
INPUT = {"inputs": "hello"}


@dataclass(kw_only=True)
class World:
    """A hub, and a host that starts servers."""

    hub: LoopbackHub
    folder: Path

    def server(self, *options: str, model: str = ID, **env: str) -> ServerProcess:
        return ServerProcess(
            model,
            *("--artifact-cache", str(self.folder / "cache"), *options),
            env={**self.hub.environment, "HF_HOME": str(self.folder / "hub"), **env},
            ready_timeout_s=300,
        )

    def download(self, revision: str) -> None:
        """Put a checkpoint into the hub library's cache, as an earlier compile has."""
        script = (
            "from infinity_v3.compiler.checkpoint_files import HUB_PATTERNS\n"
            "from infinity_v3.compiler.hub import fetch_snapshot\n"
            f"fetch_snapshot({ID!r}, {revision!r}, HUB_PATTERNS)\n"
        )
        env = {**os.environ, **self.hub.environment, "HF_HOME": str(self.folder / "hub")}
        subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60)

    def refusal(self, *options: str, model: str = ID, **env: str) -> tuple[int, str]:
        """Exit code and last line of a server that does not start."""
        server = self.server(*options, model=model, **env)
        server.start()
        try:
            code = server.process.wait(60)
        finally:
            server.kill()
        assert "Traceback" not in server.log
        return code, server.log.splitlines()[-1]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("hub")
    current = make_tiny_checkpoint("distilbert", folder / "current", max_positions=32, num_layers=1)
    old = Path(shutil.copytree(current, folder / "old"))
    config = old / "config.json"
    config.write_text(config.read_text().replace("DistilBertModel", "NobodyKnowsModel"))
    commits = {FIRST: old, SECOND: current}
    names = {"v1": FIRST, "main": SECOND}
    with serving_hub(LoopbackHub(repository=ID, commits=commits, names=names)) as hub:
        yield World(hub=hub, folder=folder)


@dataclass(frozen=True, kw_only=True)
class FirstStart:
    """What two servers gave that were started at once."""

    vectors: list[object]
    logs: list[str]


@pytest.fixture(scope="module")
def first_start(world: World) -> FirstStart:
    pair = [world.server(), world.server()]
    try:
        for server in pair:
            server.start()
        for server in pair:
            server.wait_until_ready()
        vectors = [server.post("/embed", INPUT).json() for server in pair]
        assert [server.stop() for server in pair] == [0, 0]
        return FirstStart(vectors=vectors, logs=[server.log for server in pair])
    finally:
        for server in pair:
            server.kill()


def test_two_servers_at_once_compile_once(world: World, first_start: FirstStart) -> None:
    assert sum("compiling once: infinity-compile model" in log for log in first_start.logs) == 1
    (waited,) = (log for log in first_start.logs if "compiled earlier" in log)
    assert "another server compiles the same; waiting for it" in waited
    assert first_start.vectors[0] == first_start.vectors[1]
    assert len(list((world.folder / "cache" / "compiled").glob("*/artifact.json"))) == 1
    downloads = [line for line in world.hub.requests if line.startswith(f"GET /{ID}/resolve/")]
    assert downloads
    assert len(downloads) == len(set(downloads))
    assert all(SECOND in line for line in downloads)
    assert all(f"of commit {SECOND}" in log for log in first_start.logs)


@pytest.mark.parametrize("env", [{}, {"HF_HUB_OFFLINE": "1"}])
def test_a_later_start_does_not_ask_the_hub(
    world: World, first_start: FirstStart, env: dict[str, str]
) -> None:
    count = len(world.hub.requests)
    world.hub.names["main"] = FIRST
    try:
        with world.server(**env) as server:
            assert server.post("/embed", INPUT).json() == first_start.vectors[0]
    finally:
        world.hub.names["main"] = SECOND
    assert "compiled earlier" in server.log
    assert f"of commit {SECOND}" in server.log
    assert world.hub.requests[count:] == []


def test_a_pinned_revision_is_the_one_that_is_read(world: World) -> None:
    """Its checkpoint is refused by name, so that nothing has to be compiled to know it again."""
    count = len(world.hub.requests)
    code, line = world.refusal("--revision", "v1")
    assert code == 2
    assert line.startswith(f"error: --model-id {ID}: compiling failed: ")
    assert "NobodyKnowsModel" in line
    asked = world.hub.requests[count:]
    assert asked[0] == f"GET /api/models/{ID}/revision/v1"
    assert any(FIRST in request for request in asked)
    assert not any(SECOND in request for request in asked)
    assert not any("safetensors" in request for request in asked), "weights come last"


def test_a_downloaded_checkpoint_is_found_without_the_hub(world: World) -> None:
    world.download("v1")
    count = len(world.hub.requests)
    code, line = world.refusal("--revision", "v1", HF_HUB_OFFLINE="1")
    assert code == 2
    assert "NobodyKnowsModel" in line
    assert world.hub.requests[count:] == []


def test_an_unknown_revision(world: World) -> None:
    code, line = world.refusal("--revision", "v9")
    assert code == 2
    assert line.endswith(f"{ID}: the hub has no revision 'v9' of it")


def test_pit_33_offline_and_not_cached_is_an_immediate_error(world: World) -> None:
    count = len(world.hub.requests)
    begun_s = time.monotonic()
    code, line = world.refusal(model="org/never-seen", HF_HUB_OFFLINE="1")
    assert code == 1
    assert line == (
        "error: --model-id org/never-seen: compiling failed: org/never-seen: no directory of that "
        "name exists here, the hub is offline (HF_HUB_OFFLINE) and the cache holds no complete "
        "copy; unset HF_HUB_OFFLINE or give a local directory"
    )
    assert time.monotonic() - begun_s < 30
    assert world.hub.requests[count:] == []
