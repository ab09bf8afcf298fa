"""Hub look-ups against a local stand-in for the hub.

Each runs in a fresh process, since the library reads its settings when it is imported.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
SCRIPT = """
import json, socket, sys
from infinity_v3.artifacts.errors import InfinityError
from infinity_v3.compiler.hub import fetch_snapshot

if {is_network_forbidden}:
    def forbidden(*_):
        raise SystemExit("network was used")
    socket.socket.connect = forbidden
    socket.getaddrinfo = forbidden
try:
    snapshot = fetch_snapshot("org/name", {revision!r}, ["config.json"])
    print(json.dumps({{"path": str(snapshot.path), "commit": snapshot.commit}}))
except InfinityError as error:
    print(json.dumps({{"exit_code": error.exit_code, "message": str(error)}}))
"""


def fetch(
    home: Path,
    env: dict[str, str],
    *,
    revision: str | None = None,
    is_network_forbidden: bool = False,
) -> dict[str, object]:
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    script = SCRIPT.format(revision=revision, is_network_forbidden=is_network_forbidden)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=kept | {"HF_HOME": str(home), "HF_HUB_DISABLE_TELEMETRY": "1"} | env,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert isinstance(result, dict)
    return result


def cache_snapshot(home: Path) -> Path:
    repository = home / "hub" / "models--org--name"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return snapshot


@contextmanager
def stand_in_hub(status: int, headers: dict[str, str]) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("content-length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815  the base class decides the names

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("revision", [None, "main", COMMIT])
def test_offline_finds_a_cached_snapshot_without_network(
    tmp_path: Path, revision: str | None
) -> None:
    snapshot = cache_snapshot(tmp_path)
    found = fetch(tmp_path, {"HF_HUB_OFFLINE": "1"}, revision=revision, is_network_forbidden=True)
    assert found == {"path": str(snapshot), "commit": COMMIT}


def test_offline_without_a_copy_says_so_without_network(tmp_path: Path) -> None:
    found = fetch(tmp_path, {"HF_HUB_OFFLINE": "1"}, is_network_forbidden=True)
    assert found["exit_code"] == 1
    assert str(found["message"]).startswith(
        "org/name: no directory of that name exists here, the hub is offline (HF_HUB_OFFLINE)"
    )


@pytest.mark.parametrize(
    ("status", "code", "exit_code", "message"),
    [
        (401, "RepoNotFound", 2, "the hub has no such model, or it is private"),
        (404, "RepoNotFound", 2, "the hub has no such model, or it is private"),
        (404, "RevisionNotFound", 2, "the hub has no revision 'v9' of it"),
        (403, "GatedRepo", 2, "access is restricted; accept its terms"),
        (500, "", 1, "the hub cannot be reached"),
    ],
)
def test_what_the_hub_refuses(
    tmp_path: Path, status: int, code: str, exit_code: int, message: str
) -> None:
    with stand_in_hub(status, {"X-Error-Code": code} if code else {}) as endpoint:
        found = fetch(tmp_path, {"HF_ENDPOINT": endpoint}, revision="v9")
    assert found["exit_code"] == exit_code, found
    assert message in str(found["message"])
    assert "\n" not in str(found["message"])


def test_an_unreachable_hub(tmp_path: Path) -> None:
    found = fetch(tmp_path, {"HF_ENDPOINT": "http://127.0.0.1:9"})
    assert found["exit_code"] == 1
    assert "the hub cannot be reached" in str(found["message"])
