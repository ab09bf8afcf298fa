"""A server under measurement: started on the loopback interface, asked, stopped.

Knows nothing of what the figures are for.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import RunFailedError

READY = re.compile(r"ready on http://127\.0\.0\.1:(\d+)")
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 40.0
POLL_S = 0.01
PATH = "/"  # whatever the kind of the model answers


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedServer:
    """One server that is ready.

    Attributes:
        startup_s: process start to first answer.
    """

    port: int
    body: bytes
    startup_s: float

    def ask(self, num_clients: int, seconds: float) -> list[float]:
        """Have clients ask for so long, each as soon as it is answered; gives reply times.

        Raises:
            RunFailedError: a reply that is no 200.
        """
        return asyncio.run(_ask(self.port, self.body, num_clients, seconds))


@contextmanager
def running_server(
    artifact: Path, options: Sequence[str], environ: Mapping[str, str], body: object
) -> Iterator[TunedServer]:
    """Serve an artifact inside the block.

    Args:
        artifact: directory of it.
        options: of the server, beside the model, the address and the port.
        environ: variables of the server beside those of this process.
        body: what clients ask.

    Raises:
        RunFailedError: the server did not start, or did not answer.
    """
    command = [
        *(sys.executable, "-m", "infinity_v3.server.cli", "--model-id", str(artifact)),
        *("--hostname", "127.0.0.1", "--port", "0", *options),
    ]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("INFINITY_")}
    with tempfile.NamedTemporaryFile(prefix="infinity-tune-", suffix=".log") as log:
        begun_s = time.perf_counter()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**kept, **environ},
        )
        try:
            port = _wait_until_ready(process, Path(log.name))
            data = json.dumps(body).encode()
            asyncio.run(_ask(port, data, 1, 0.0))
            startup_s = time.perf_counter() - begun_s
            yield TunedServer(port=port, body=data, startup_s=startup_s)
        finally:
            _stop(process)


def _wait_until_ready(process: "subprocess.Popen[bytes]", log: Path) -> int:
    deadline_s = time.monotonic() + READY_TIMEOUT_S
    while True:
        text = log.read_text(errors="replace")
        if found := READY.search(text):
            return int(found[1])
        if process.poll() is not None:
            last = text.strip().splitlines()[-1:] or ["it said nothing"]
            raise RunFailedError(f"the server to be measured did not start: {last[0]}")
        if time.monotonic() > deadline_s:
            raise RunFailedError(
                f"the server to be measured was not ready within {READY_TIMEOUT_S:g} s"
            )
        time.sleep(POLL_S)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


async def _ask(port: int, body: bytes, num_clients: int, seconds: float) -> list[float]:
    times_s: list[float] = []
    until_s = time.perf_counter() + seconds
    await asyncio.gather(*(_client(port, body, until_s, times_s) for _ in range(num_clients)))
    return times_s


async def _client(port: int, body: bytes, until_s: float, times_s: list[float]) -> None:
    """Ask once, and again until the time is over."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST {PATH} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    )
    try:
        while True:
            sent_s = time.perf_counter()
            writer.write(head.encode() + body)
            await _read_reply(reader)
            times_s.append(time.perf_counter() - sent_s)
            if time.perf_counter() >= until_s:
                return
    finally:
        writer.close()


async def _read_reply(reader: asyncio.StreamReader) -> None:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    length = re.search(r"(?i)\ncontent-length: (\d+)", head)
    reply = await reader.readexactly(int(length[1])) if length else b""
    if not head.startswith("HTTP/1.1 200 "):
        status = head.split("\r\n", 1)[0]
        raise RunFailedError(
            f"the server to be measured answered {status!r}: {reply[:300].decode(errors='replace')}"
        )


def quantile_s(times_s: Sequence[float], share: float) -> float:
    """The time that a share of the replies stayed within."""
    ranked = sorted(times_s)
    return ranked[min(int(share * len(ranked)), len(ranked) - 1)]
