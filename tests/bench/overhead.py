"""Measures what the server adds to an engine call, with one client, and where that time goes.

Three servers take turns: one with a stopwatch around its engine calls alone, whose replies count,
each less its own engine call; one with stopwatches around all stages, which says where the time
goes; and one that is the transport with nothing behind it.

A CPU without work goes to sleep, and waking it takes time, above all in a virtual machine:
`--awake` keeps the CPUs busy with processes that give way to all others.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from background import background
from http_load import content_length, request_bytes
from machine import describe_machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from server_process import ServerProcess

TEXT = "A cat sleeps on the warm stones beside the river."
WARM_UP_REQUESTS = 200
SPINNER = """
import ctypes, os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
library, lock = ctypes.CDLL(None), ctypes.c_int()
library.pthread_spin_init(ctypes.byref(lock), 0)
for _ in range(2):
    library.pthread_spin_lock(ctypes.byref(lock))
"""
"""Looks at a lock that nobody opens, with the instruction that leaves the core to its sibling."""
MICROSECONDS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Medians of one run, in seconds.

    Attributes:
        reply_s: one request, as the client sees it.
        engine_s: its engine call.
        added_s: a reply less its own engine call.
        transport_s: one request to the transport alone, which sends as many bytes back.
        stages: seconds of each stage of a served request, in order; their sum is the reply time of
            the server with all stopwatches.
    """

    reply_s: float
    engine_s: float
    added_s: float
    transport_s: float
    stages: Mapping[str, float]


class Client:
    """One kept connection; a reply is read by its content length."""

    def __init__(self, base_url: str, path: str) -> None:
        address = urlsplit(base_url)
        self._socket = socket.create_connection((address.hostname or "", address.port or 0))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request = request_bytes(base_url, path, {"inputs": TEXT})
        self.reply_bytes = 0

    def ask(self) -> float:
        """Send the request and read the whole reply; gives the seconds until its last byte."""
        started = ended = time.perf_counter()
        self._socket.sendall(self._request)
        received = b""
        while (size := _reply_size(received)) is None or len(received) < size:
            more = self._socket.recv(65536)
            ended = time.perf_counter()
            if not more:
                raise SystemExit("the server closed the connection")
            received += more
        seconds = ended - started
        if not received.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server refused the request: {received[:200]!r}")
        self.reply_bytes = content_length(received.partition(b"\r\n\r\n")[0]) or 0
        return seconds

    def close(self) -> None:
        self._socket.close()


def _reply_size(received: bytes) -> int | None:
    """Bytes of the whole reply, once its headers are there."""
    head, mark, _ = received.partition(b"\r\n\r\n")
    return len(head) + len(mark) + content_length(head) if mark else None


def main() -> None:
    options = _parse()
    cpus = os.sched_getaffinity(0) if options.awake else ()
    with background([(sys.executable, "-c", SPINNER, str(cpu)) for cpu in cpus]):
        overhead = measure(options.artifact, options.rounds, options.requests)
    if options.json:
        print(json.dumps({"overhead": _figures(overhead), "machine": describe_machine()}))
        return
    print(json.dumps(describe_machine()))
    print("| stage | median, µs |\n|---|---:|")
    for name, seconds in overhead.stages.items():
        print(f"| {name} | {seconds * MICROSECONDS:.0f} |")
    print(
        f"reply {overhead.reply_s * 1e3:.3f} ms, engine {overhead.engine_s * 1e3:.3f} ms, "
        f"{overhead.added_s * 1e3:.3f} ms added by the server; "
        f"{overhead.transport_s * 1e3:.3f} ms the transport alone"
    )


def measure(artifact: Path, num_rounds: int, num_requests: int) -> Overhead:
    """Ask both servers in turn, `num_requests` each per round."""
    with tempfile.TemporaryDirectory() as folder:
        files = {what: Path(folder) / f"{what}.json" for what in ("engine", "stages")}
        with ExitStack() as stack:
            clients = {
                what: stack.enter_context(
                    _client(stack.enter_context(_traced(artifact, what, file)).base_url)
                )
                for what, file in files.items()
            }
            clients["engine"].ask()
            bare = stack.enter_context(_bare_server(clients["engine"].reply_bytes))
            clients["transport"] = stack.enter_context(_client(bare))
            for client in clients.values():
                _ask(client, WARM_UP_REQUESTS)
            seconds: dict[str, list[float]] = {what: [] for what in clients}
            for _ in range(num_rounds):
                for what, client in clients.items():
                    seconds[what] += _ask(client, num_requests)
        calls, stages = (json.loads(file.read_text()) for file in files.values())
    replies = seconds["engine"]
    engine = calls[-len(replies) :]
    return Overhead(
        reply_s=statistics.median(replies),
        engine_s=statistics.median(engine),
        added_s=statistics.median(
            reply - call for reply, call in zip(replies, engine, strict=True)
        ),
        transport_s=statistics.median(seconds["transport"]),
        stages=_table(stages, statistics.median(seconds["stages"])),
    )


def _traced(artifact: Path, what: str, figures: Path) -> ServerProcess:
    program = Path(__file__).resolve().with_name("traced_server.py")
    return ServerProcess(artifact, launcher=(sys.executable, str(program), what, str(figures)))


def _table(stages: Mapping[str, float], reply_s: float) -> dict[str, float]:
    """Split a reply time into stages that add up to it; counting comes behind the reply."""
    server_s = stages["server"] - stages["count"]
    known = {
        "read and parse the body": stages["read"],
        "check it, find the model": stages["check"],
        "tokenise": stages["tokenise"],
        "to the engine thread and back": stages["wait"] - stages["batch"],
        "engine": stages["engine"],
        "pack the batch, read its rows": stages["batch"] - stages["engine"],
        "the result of the request": stages["service"] - stages["tokenise"] - stages["wait"],
        "serialise": stages["serialise"],
        "headers, hand over to the transport": stages["send"],
    }
    known["routes, limits, the rest of the server"] = server_s - sum(known.values())
    known["sockets, transport, client"] = reply_s - server_s
    return known


@contextmanager
def _bare_server(num_bytes: int) -> Iterator[str]:
    """Run it; gives its address."""
    program = Path(__file__).resolve().with_name("bare_server.py")
    command = [sys.executable, str(program), str(num_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None, "a pipe was asked for; this is a bug"
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@contextmanager
def _client(base_url: str) -> Iterator[Client]:
    client = Client(base_url, "/embed")
    try:
        yield client
    finally:
        client.close()


def _ask(client: Client, num_requests: int) -> list[float]:
    return [client.ask() for _ in range(num_requests)]


def _figures(overhead: Overhead) -> dict[str, object]:
    stages = {name: round(seconds * MICROSECONDS) for name, seconds in overhead.stages.items()}
    return {
        "reply_ms": round(overhead.reply_s * 1e3, 3),
        "engine_ms": round(overhead.engine_s * 1e3, 3),
        "added_ms": round(overhead.added_s * 1e3, 3),
        "transport_ms": round(overhead.transport_s * 1e3, 3),
        "stages_us": stages,
    }


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--requests", type=int, default=200, help="per round and server")
    parser.add_argument("--awake", action="store_true", help="keep CPUs from going to sleep")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
