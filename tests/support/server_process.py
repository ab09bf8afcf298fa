"""A real `infinity_v3` process on the loopback interface: start, wait until ready, ask, stop."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import Message
from pathlib import Path
from types import TracebackType

POLL_S = 0.01
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ADDRESS = re.compile(r"http://(?:127\.0\.0\.1|\[::1\]|localhost|0\.0\.0\.0):(?P<port>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back for one request; header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> object:
        return json.loads(self.body)


class ServerProcess:
    """One server; as a context manager it is ready inside the block and gone after it.

    Without `port` the server takes a free one and is asked only after it has named it.

    `--hostname`, `--port` and `--prometheus-port` are set here unless the options name them: the
    loopback interface, a free port, no separate metrics listener. `INFINITY_*` variables of the
    caller do not reach the process. `launcher` is a command that is given the program to run.
    """

    def __init__(
        self,
        model: str | Path,
        *options: str,
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        ready_timeout_s: float = 60.0,
        launcher: Sequence[str] = (),
    ) -> None:
        named = () if port is None else ("--port", str(port))
        self._arguments = _with_defaults(model, [*options, *named])
        self._env = _clean_environment() | dict(env or {})
        self._ready_timeout_s = ready_timeout_s
        self._launcher = tuple(launcher)
        self._log = tempfile.NamedTemporaryFile(prefix="infinity-server-", suffix=".log")  # noqa: SIM115
        self._kept_log = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._port = port

    def __enter__(self) -> "ServerProcess":
        self.start()
        try:
            self.wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.process.poll() is None and error is None:
            self.stop()
        self.kill()

    @property
    def process(self) -> "subprocess.Popen[bytes]":
        assert self._process is not None, "the server was not started"
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def base_url(self) -> str:
        assert self._port is not None, f"the server named no port yet:\n{self.log}"
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        """Everything the process has written to standard output and standard error."""
        if self._log.closed:
            return self._kept_log
        return Path(self._log.name).read_text(errors="replace")

    @property
    def rss_bytes(self) -> int:
        """Resident memory now."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def start(self) -> None:
        """Start the process without waiting for it."""
        program = Path(sys.executable).with_name("infinity_v3")
        self._process = subprocess.Popen(
            [*self._launcher, str(program), *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env=self._env,
        )

    def wait_until_ready(self) -> None:
        """Wait until `/ready` answers 200.

        Raises:
            RuntimeError: the process ended, or the deadline passed; the message holds its log.
        """
        deadline = time.monotonic() + self._ready_timeout_s
        while not self._is_ready():
            if self.process.poll() is not None:
                raise RuntimeError(f"infinity_v3 ended with {self.process.returncode}:\n{self.log}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"not ready after {self._ready_timeout_s} s:\n{self.log}")
            time.sleep(POLL_S)

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self._ask(urllib.request.Request(self.base_url + path, headers=dict(headers or {})))

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Reply:
        """Send JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(
            self.base_url + path,
            data=data,
            headers={"content-type": "application/json", **(headers or {})},
        )
        return self._ask(request)

    def stop(self, *, stop_signal: int = signal.SIGTERM, timeout_s: float = 40.0) -> int:
        """Ask the process to end and give its exit code (negative = killed by that signal)."""
        self.process.send_signal(stop_signal)
        return self.process.wait(timeout_s)

    def kill(self) -> None:
        """End the process now; harmless when it has ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        if not self._log.closed:
            self._kept_log = self.log
            self._log.close()

    def _is_ready(self) -> bool:
        if self._port is None:
            self._port = _port_from(self.log)
        if self._port is None:
            return False
        try:
            return self.get("/ready").status == 200
        except OSError:  # nobody listens yet
            return False

    def _ask(self, request: urllib.request.Request) -> Reply:
        # No proxy of the environment stands between a test and its server.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(request, timeout=60) as reply:
                return Reply(status=reply.status, headers=_lower(reply.headers), body=reply.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(status=error.code, headers=_lower(error.headers), body=error.read())


def free_port() -> int:
    """A port of the loopback interface that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


def _lower(headers: "Message[str, str]") -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _with_defaults(model: str | Path, options: Sequence[str]) -> list[str]:
    arguments = ["--model-id", str(model), *options]
    defaults = {"--hostname": "127.0.0.1", "--port": "0", "--prometheus-port": "0"}
    for name, value in defaults.items():
        if not any(option == name or option.startswith(f"{name}=") for option in options):
            arguments += [name, value]
    return arguments


def _clean_environment() -> dict[str, str]:
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("INFINITY_") and name not in {"PORT", "MAX_SEQUENCE_LENGTH", "TASK"}
    }


def _port_from(log: str) -> int | None:
    found = ADDRESS.search(log)
    return int(found["port"]) if found else None
