"""Answers a container library as an engine whose one container is a server that runs already.

For clients that start their server from an image. Standard library only; knows nothing of images.
"""

import json
import re
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType

_API_VERSION = "1.44"
_CONTAINER = {
    "Id": "c0",
    "Name": "/server",
    "Image": "sha256:00",
    "State": {"Status": "running"},
    "Config": {"Image": "server", "Labels": {}, "Tty": False},
    "HostConfig": {"LogConfig": {"Type": "json-file"}},
    "NetworkSettings": {"Ports": {}},
}
_VERSION = {"Version": "27.0.0", "ApiVersion": _API_VERSION, "MinAPIVersion": "1.24"}


class DockerStandIn:
    """As a context manager it listens on loopback; `host` is what DOCKER_HOST takes."""

    def __init__(self) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True

    def __enter__(self) -> "DockerStandIn":
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def host(self) -> str:
        return f"tcp://127.0.0.1:{self._server.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = _plain(self.path)
        if path.endswith("/logs"):
            text = b"Ready\n"
            # One frame of standard output.
            self._answer(
                200, struct.pack(">BxxxL", 1, len(text)) + text, "application/octet-stream"
            )
        elif path == "/version":
            self._answer(200, _VERSION)
        elif path.startswith("/images/"):
            self._answer(200, {"Id": "sha256:00", "RepoTags": ["server"], "Config": {}})
        else:
            self._answer(200, _CONTAINER)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length") or 0))
        path = _plain(self.path)
        if path == "/containers/create":
            self._answer(201, {"Id": "c0", "Warnings": []})
        elif path.endswith("/wait"):
            self._answer(200, {"StatusCode": 0})
        else:
            self._answer(204, b"")

    def _answer(self, status: int, body: object, kind: str = "application/json") -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *arguments: object) -> None:
        """Say nothing."""


def _plain(path: str) -> str:
    return re.sub(r"^/v\d+\.\d+", "", path.partition("?")[0])
