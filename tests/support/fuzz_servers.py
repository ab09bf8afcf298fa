"""Real servers for the live part of the fuzz run, and what is sent to them outside of HTTP.

Knows nothing of strategies or counts.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from fuzz_checks import FuzzAnswer
from fuzz_live import LiveConnection
from fuzz_requests import FuzzRequest
from http_malformed import attacks, send
from infinity_v3.artifacts.manifest import Kind
from server_process import ServerProcess

MIB = 1 << 20
ATTACK_STATUSES = {None, 400, 404, 405, 408, 413, 414, 415, 422, 424, 431, 505}


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveServer:
    """One server under attack."""

    kind: Kind
    port: int
    ask: Callable[[Sequence[FuzzRequest]], Sequence[FuzzAnswer]]
    process: ServerProcess | None = None

    @property
    def rss_mib(self) -> float:
        """Resident memory; 0 for a server in this process."""
        return self.process.rss_bytes / MIB if self.process is not None else 0.0


@contextmanager
def real_servers(artifacts: Mapping[Kind, Path]) -> Iterator[tuple[LiveServer, ...]]:
    """A process for each artifact, all limits as shipped but the time for a body."""
    with ExitStack() as stack:
        yield tuple(_served(kind, path, stack) for kind, path in artifacts.items())


def _served(kind: Kind, artifact: Path, stack: ExitStack) -> LiveServer:
    options = ("--body-read-timeout", "0.3", "--dtype", "float32")
    process = stack.enter_context(ServerProcess(artifact, *options))
    port = int(process.base_url.rpartition(":")[2])
    return live_server(kind, port, stack, process)


def live_server(
    kind: Kind, port: int, stack: ExitStack, process: ServerProcess | None = None
) -> LiveServer:
    """A server on a port, asked over one keep-alive connection."""
    connection = stack.enter_context(LiveConnection(port))

    def ask(requests: Sequence[FuzzRequest]) -> Sequence[FuzzAnswer]:
        return [connection.ask(request) for request in requests]

    return LiveServer(kind=kind, port=port, ask=ask, process=process)


def attack(server: LiveServer, first_seed: int, count: int) -> None:
    """Send what is hardly HTTP, each on a connection of its own.

    Raises:
        AssertionError: an answer that garbage may not get.
    """
    url = f"http://127.0.0.1:{server.port}"
    for made in attacks(first_seed, count):
        outcome = send(url, made)
        # What one kind of model refuses, another may take.
        is_value = made.name == "value" and outcome.status == 200
        assert is_value or outcome.status in ATTACK_STATUSES, (made.name, made.data[:500], outcome)


def check_alive(server: LiveServer) -> None:
    """The server still works and complained of nothing.

    Raises:
        AssertionError: its process ended, is not ready, or logged a bug.
    """
    if server.process is None:
        return
    assert server.process.process.poll() is None, f"it ended:\n{server.process.log[-4000:]}"
    assert server.process.get("/ready").status == 200
    log = server.process.log
    assert "Traceback" not in log, log[-4000:]
    assert "this is a bug" not in log, log[-4000:]
