"""A hub of checkpoints on the loopback interface: enough of its HTTP API to download one.

Knows nothing of what is in the files.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from urllib.parse import unquote, urlsplit

INFO = "/api/models/"
RESOLVE = "/resolve/"


@dataclass(kw_only=True)
class LoopbackHub:
    """One repository with branches and tags.

    Attributes:
        commits: commit -> folder with its files.
        names: branch or tag -> commit.
        requests: method and path of everything that was asked, in order.
    """

    repository: str
    commits: Mapping[str, Path]
    names: dict[str, str]
    port: int = 0
    requests: list[str] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that send the hub's library here."""
        return {
            "HF_ENDPOINT": f"http://127.0.0.1:{self.port}",
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "NO_PROXY": "127.0.0.1",
        }

    def record(self, line: str) -> None:
        with self.lock:
            self.requests.append(line)

    def find(self, revision: str) -> str | None:
        """The commit that a name or a commit stands for."""
        return revision if revision in self.commits else self.names.get(revision)

    def info(self, revision: str) -> bytes | None:
        """What the hub says about a revision."""
        commit = self.find(revision)
        if commit is None:
            return None
        siblings = [{"rfilename": name} for name, _ in self._files(commit)]
        return json.dumps({"id": self.repository, "sha": commit, "siblings": siblings}).encode()

    def tree(self, revision: str) -> bytes | None:
        """Its files with their sizes."""
        commit = self.find(revision)
        if commit is None:
            return None
        rows = [
            {
                "type": "file",
                "path": name,
                "size": size,
                "oid": hashlib.sha1(name.encode()).hexdigest(),
            }
            for name, size in self._files(commit)
        ]
        return json.dumps(rows).encode()

    def _files(self, commit: str) -> list[tuple[str, int]]:
        root = self.commits[commit]
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        return [(path.relative_to(root).as_posix(), path.stat().st_size) for path in paths]


class _Handler(BaseHTTPRequestHandler):
    """Answers for the `hub` that a subclass names."""

    protocol_version = "HTTP/1.1"
    hub: LoopbackHub

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.record(f"{self.command} {path}")
        about, files = f"{INFO}{self.hub.repository}", f"/{self.hub.repository}{RESOLVE}"
        if path.startswith(f"{about}/tree/"):
            self._answer(self.hub.tree(path.rpartition("/")[2]), "RevisionNotFound", {})
        elif path.startswith(about):
            self._answer(self.hub.info(path.rpartition("/")[2]), "RevisionNotFound", {})
        elif path.startswith(files):
            revision, _, name = path.removeprefix(files).partition("/")
            self._file(revision, name)
        else:
            self._answer(None, "RepoNotFound", {})

    do_HEAD = do_GET  # noqa: N815  the base class decides the names

    def _file(self, revision: str, name: str) -> None:
        commit = self.hub.find(revision)
        file = self.hub.commits[commit] / name if commit is not None else None
        if commit is None or file is None or not file.is_file():
            self._answer(None, "EntryNotFound", {})
            return
        content = file.read_bytes()
        etag = f'"{hashlib.sha256(content).hexdigest()}"'
        self._answer(content, "", {"ETag": etag, "X-Repo-Commit": commit})

    def _answer(self, body: bytes | None, code: str, headers: Mapping[str, str]) -> None:
        self.send_response(404 if body is None else 200)
        if body is None:
            self.send_header("X-Error-Code", code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def serving_hub(hub: LoopbackHub) -> Iterator[LoopbackHub]:
    """The hub on a free port; gone after the block."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    hub.port = server.server_port
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
