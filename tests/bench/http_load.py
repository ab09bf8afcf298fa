"""Clients in one event loop: each asks again as soon as it has its answer, or at random times.

Replies are read by their content length and not parsed, so that a client costs little beside a
server. Knows nothing of servers.
"""

import asyncio
import itertools
import json
import math
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvloop

_DONE, _REFUSED = 200, 429


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What came of a run.

    Attributes:
        seconds: how long it took.
        latencies_s: of every request answered with 200.
        refused: requests answered with 429, which only an offered load may be; anything else ends
            the run.
    """

    seconds: float
    latencies_s: tuple[float, ...]
    refused: int = 0

    @property
    def requests_per_s(self) -> float:
        return len(self.latencies_s) / self.seconds

    def quantile_s(self, share: float) -> float:
        """The latency that `share` of the answered requests stayed within; NaN of none."""
        if not self.latencies_s:
            return math.nan
        ranked = sorted(self.latencies_s)
        return ranked[min(int(share * len(ranked)), len(ranked) - 1)]


def request_bytes(base_url: str, path: str, body: object) -> bytes:
    """A whole POST request for a kept connection."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {urlsplit(base_url).netloc}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


def drive(base_url: str, requests: Sequence[bytes], *, clients: int, seconds: float) -> Load:
    """Send the requests, over and over, from so many clients for so long.

    Raises:
        SystemExit: a reply that is no 200, or has no content length.
    """
    return uvloop.run(_drive(base_url, requests, clients, seconds))


def offer(base_url: str, requests: Sequence[bytes], *, rate_per_s: float, seconds: float) -> Load:
    """Send requests at the times of a Poisson process, whether or not answers have come.

    A latency counts from when its request was due, and the run ends with the last answer.

    Raises:
        SystemExit: a reply that is neither 200 nor 429, or has no content length.
    """
    return uvloop.run(_offer(base_url, requests, rate_per_s, seconds))


async def _offer(
    base_url: str, requests: Sequence[bytes], rate_per_s: float, seconds: float
) -> Load:
    source = random.Random(11)
    idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    address = urlsplit(base_url)
    started = time.perf_counter()

    async def send(due: float, request: bytes) -> float | None:
        pair = idle.pop() if idle else None
        reader, writer = pair or await asyncio.open_connection(address.hostname, address.port)
        writer.write(request)
        status = await _read_reply(reader, (_DONE, _REFUSED))
        idle.append((reader, writer))
        return time.perf_counter() - due if status == _DONE else None

    tasks, due, endless = [], started, itertools.cycle(requests)
    while (due := due + source.expovariate(rate_per_s)) < started + seconds:
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(send(due, next(endless))))
    answers = await asyncio.gather(*tasks)
    for _, writer in idle:
        writer.close()
    latencies_s = tuple(latency_s for latency_s in answers if latency_s is not None)
    seconds = time.perf_counter() - started
    return Load(seconds=seconds, latencies_s=latencies_s, refused=len(answers) - len(latencies_s))


async def _drive(base_url: str, requests: Sequence[bytes], clients: int, seconds: float) -> Load:
    latencies_s: list[float] = []
    endless = itertools.cycle(requests)
    started = time.perf_counter()
    until = started + seconds
    await asyncio.gather(*(_client(base_url, endless, until, latencies_s) for _ in range(clients)))
    return Load(seconds=time.perf_counter() - started, latencies_s=tuple(latencies_s))


async def _client(
    base_url: str, requests: Iterator[bytes], until: float, latencies_s: list[float]
) -> None:
    address = urlsplit(base_url)
    reader, writer = await asyncio.open_connection(address.hostname, address.port)
    try:
        while (sent := time.perf_counter()) < until:
            writer.write(next(requests))
            await _read_reply(reader, (_DONE,))
            latencies_s.append(time.perf_counter() - sent)
    finally:
        writer.close()


async def _read_reply(reader: asyncio.StreamReader, expected: Sequence[int]) -> int:
    """Read one reply whole; gives its status."""
    head = await reader.readuntil(b"\r\n\r\n")
    line = head.split(b"\r\n", 1)[0].decode()
    status = int(line.split(" ", 2)[1])
    if status not in expected:
        raise SystemExit(f"expected {' or '.join(map(str, expected))}, found {line}")
    await reader.readexactly(content_length(head))
    return status


def content_length(head: bytes) -> int:
    """Bytes of the body behind these headers.

    Raises:
        SystemExit: they do not say.
    """
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    raise SystemExit("a reply without a content length")
