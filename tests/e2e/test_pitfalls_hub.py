"""Pitfall of the field: a server that is told to stay off the hub and asks it all the same."""

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tiny_artifacts import TinyArtifact
from tiny_json import set_json_key

MODEL = "org/tiny-model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


@contextmanager
def hub_that_nobody_calls() -> Iterator[tuple[str, list[str]]]:
    """An address, and who connected to it."""
    callers: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            while True:
                try:
                    connection, address = listener.accept()
                except OSError:  # closed
                    return
                callers.append(str(address))
                connection.close()

        thread = threading.Thread(target=listen, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", callers
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def offline(endpoint: str, home: Path) -> dict[str, str]:
    """Every way to the hub ends at the endpoint."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "all_proxy"), endpoint)
    hub = {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": endpoint, "HF_HOME": str(home)}
    return hub | proxies | {"no_proxy": "", "XDG_CACHE_HOME": str(home / "xdg")}


def cache_checkpoint(home: Path, checkpoint: Path) -> Path:
    """Put a checkpoint where the hub's library keeps what it has downloaded."""
    repository = home / "hub" / f"models--{MODEL.replace('/', '--')}"
    found = shutil.copytree(checkpoint, repository / "snapshots" / COMMIT)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return Path(found)


def refusal(home: Path) -> tuple[str, list[str]]:
    """The last line of a server that does not start, and who called the hub."""
    program = Path(sys.executable).with_name("infinity_v3")
    kept = {name: value for name, value in os.environ.items() if "INFINITY_" not in name}
    with hub_that_nobody_calls() as (endpoint, callers):
        done = subprocess.run(
            [program, "--model-id", MODEL, "--port", "0", "--prometheus-port", "0"],
            capture_output=True,
            text=True,
            env=kept | offline(endpoint, home),
            timeout=120,
            check=False,
        )
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"error: --model-id {MODEL}: ")
    return last, callers


def test_pit_33_offline_and_not_cached(tmp_path: Path) -> None:
    last, callers = refusal(tmp_path)
    assert "HF_HUB_OFFLINE" in last
    assert callers == []


def test_pit_33_offline_and_cached(small: TinyArtifact, tmp_path: Path) -> None:
    """The checkpoint is found and refused by what it says: nothing has to be compiled."""
    cached = cache_checkpoint(tmp_path, small.checkpoint)
    set_json_key(cached / "config.json", "architectures", ["NobodyKnowsModel"])
    last, callers = refusal(tmp_path)
    assert "NobodyKnowsModel" in last
    assert callers == []
