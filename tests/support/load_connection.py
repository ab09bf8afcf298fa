"""One keep-alive HTTP/1.1 connection on asyncio; every byte that comes is accounted for.

Knows nothing of load or of what answers mean.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass


class LostError(Exception):
    """The connection ended before the whole answer had come.

    Attributes:
        num_bytes: of the answer that had come.
    """

    def __init__(self, num_bytes: int) -> None:
        super().__init__(f"connection lost after {num_bytes} bytes of the answer")
        self.num_bytes = num_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """One answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class LoadConnection(asyncio.Protocol):
    """Carries one request at a time.

    Attributes:
        num_surplus_bytes: what came although nothing was asked.
        is_open: another request may be sent.
    """

    def __init__(self) -> None:
        self.num_surplus_bytes = 0
        self.is_open = False
        self.idle_since_s = 0.0
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[RawAnswer] | None = None
        self._head: tuple[int, Mapping[str, str], int] | None = None

    @classmethod
    async def open(cls, port: int) -> "LoadConnection":
        """Connect to the loopback interface."""
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(cls, "127.0.0.1", port)
        return connection

    async def ask(self, data: bytes) -> RawAnswer:
        """Send one request and wait for its answer.

        Raises:
            LostError: the connection ended first.
        """
        assert self._transport is not None, "opened by `open`"
        self._answer = asyncio.get_running_loop().create_future()
        if not self.is_open:
            raise LostError(0)
        self._transport.write(data)
        try:
            return await self._answer
        finally:
            self._answer = None

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "TCP"
        self._transport, self.is_open = transport, True

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(LostError(len(self._received)))

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():
            self.num_surplus_bytes += len(data)
            return
        self._received += data
        if self._head is None and b"\r\n\r\n" in self._received:
            self._head = self._read_head()
        if self._head is not None and len(self._received) >= self._head[2]:
            self._finish(*self._head)

    def _read_head(self) -> tuple[int, Mapping[str, str], int]:
        head, _, body = bytes(self._received).partition(b"\r\n\r\n")
        self._received = bytearray(body)
        status_line, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in map(_pair, lines)}
        return int(status_line.split(" ")[1]), headers, int(headers.get("content-length", "0"))

    def _finish(self, status: int, headers: Mapping[str, str], length: int) -> None:
        self.num_surplus_bytes += len(self._received) - length
        body = bytes(self._received[:length])
        self._received.clear()
        self._head = None
        if headers.get("connection") == "close":
            self.close()
        assert self._answer is not None, "only an awaited answer is read"
        self._answer.set_result(RawAnswer(status=status, headers=headers, body=body))


def _pair(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def request_bytes(
    path: str, body: bytes, headers: tuple[tuple[str, str], ...], request_id: str
) -> bytes:
    """A POST on a connection that stays."""
    named = (
        ("host", "127.0.0.1"),
        ("content-length", str(len(body))),
        ("x-request-id", request_id),
        *headers,
    )
    lines = "".join(f"{name}: {value}\r\n" for name, value in named)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body
