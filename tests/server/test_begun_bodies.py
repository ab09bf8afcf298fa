"""Bodies of short requests are read before the application asks, and nothing else changes."""

import asyncio
import socket
from collections.abc import Awaitable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import uvloop

from infinity_v3.server.exchange import HttpProtocol, Scope
from infinity_v3.server.transport import MAX_BEGUN_BYTES, Transport

TIMEOUT_S = 10.0


class Echo:
    """Answers with the body; says in a header whether it was begun."""

    async def __rsgi__(
        self, scope: Scope, protocol: HttpProtocol, body: Awaitable[bytes] | None = None
    ) -> None:
        whole = await (protocol() if body is None else body)
        begun = ("x-begun", str(body is not None))
        protocol.response_bytes(200, [begun, ("connection", "close")], whole or b"none")


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    number, has_ended = listener.getsockname()[1], Event()

    async def serve() -> None:
        transport = Transport(Echo(), listener, with_http2=False, max_requests=8)
        transport.start()
        while not has_ended.is_set():
            await asyncio.sleep(0.01)
        await transport.stop(TIMEOUT_S)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(uvloop.run, serve())
        yield number
        has_ended.set()
        done.result(TIMEOUT_S)


def exchange(port: int, *parts: bytes) -> str:
    """Send parts, each when the one before has gone; gives the whole reply."""
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for part in parts:
            client.sendall(part)
        return b"".join(iter(lambda: client.recv(65536), b"")).decode()


def post(headers: str) -> bytes:
    return f"POST / HTTP/1.1\r\nhost: a\r\n{headers}\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("size", "is_begun"), [(1, True), (MAX_BEGUN_BYTES, True), (MAX_BEGUN_BYTES + 1, False)]
)
def test_short_bodies_are_begun(port: int, size: int, is_begun: bool) -> None:
    body = "b" * size
    reply = exchange(port, post(f"content-length: {size}") + body.encode())
    assert f"x-begun: {is_begun}" in reply
    assert reply.endswith(f"\r\n\r\n{body}")


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nhost: a\r\n\r\n",
        post("content-length: 0"),
        post("transfer-encoding: chunked") + b"0\r\n\r\n",
    ],
    ids=["none", "empty", "chunked"],
)
def test_others_are_read_when_they_are_asked_for(port: int, head: bytes) -> None:
    reply = exchange(port, head)
    assert "x-begun: False" in reply
    assert reply.endswith("\r\n\r\nnone")


def test_who_waits_to_be_asked_is_asked_by_the_application(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), TIMEOUT_S) as client:
        client.sendall(post("content-length: 2\r\nexpect: 100-continue"))
        assert client.recv(1024).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"ok")
        assert b"x-begun: False" in client.recv(1024)


def test_a_body_that_comes_in_pieces_is_whole(port: int) -> None:
    parts = [f"{place:03}".encode() for place in range(200)]
    reply = exchange(port, post("content-length: 600"), *parts)
    assert "x-begun: True" in reply
    assert reply.endswith("\r\n\r\n" + b"".join(parts).decode())
