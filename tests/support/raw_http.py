"""A socket that speaks HTTP/1.1 byte by byte: sends anything, reads answers without leniency.

Knows nothing of what requests mean.
"""

import socket
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

TIMEOUT_S = 20.0


class BrokenError(Exception):
    """The connection ended before a whole answer, or what came is no HTTP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RawAnswer:
    """One answer; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class RawHttp:
    """One connection to the loopback interface.

    Attributes:
        unread: what has come after the last answer read.
    """

    def __init__(self, port: int, *, timeout_s: float = TIMEOUT_S) -> None:
        self.unread = b""
        self._socket = socket.create_connection(("127.0.0.1", port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "RawHttp":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are; OSError when the server has closed the connection."""
        self._socket.sendall(data)

    def send_while_open(self, data: bytes) -> bool:
        """Send what the server takes before it closes; False when it closed."""
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise
        except OSError:
            return False
        return True

    def half_close(self) -> None:
        """Say that nothing more will be sent."""
        self._socket.shutdown(socket.SHUT_WR)

    def answer(self) -> RawAnswer:
        """Read one answer.

        Raises:
            BrokenError: the connection ended first, or no HTTP came.
            TimeoutError: nothing came in time.
        """
        status_line, *lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        version, status, *_ = [*status_line.split(" "), ""]
        if version != "HTTP/1.1" or not status.isdigit():
            raise BrokenError(f"status line {status_line!r}")
        headers = {name.lower(): value.strip() for name, _, value in map(_pair, lines)}
        return RawAnswer(status=int(status), headers=headers, body=self._body(headers))

    def answer_or_end(self) -> RawAnswer | None:
        """Read one answer; None when the server closed the connection without one."""
        try:
            return self.answer()
        except (BrokenError, ConnectionError):
            return None

    def is_closed_within(self, timeout_s: float) -> bool:
        """Whether the server ends the connection in that time, whatever it sends before."""
        self._socket.settimeout(timeout_s)
        try:
            while self._socket.recv(1 << 16):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True

    def close(self) -> None:
        self._socket.close()

    def reset(self) -> None:
        """End the connection with RST."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        self._socket.close()

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return b"".join(iter(self._chunk, b""))
        return self._exactly(int(headers.get("content-length", "0")))

    def _chunk(self) -> bytes:
        data = self._exactly(int(self._until(b"\r\n"), 16))
        if self._exactly(2) != b"\r\n":
            raise BrokenError("a chunk without its end")
        return data

    def _until(self, mark: bytes) -> bytes:
        while mark not in self.unread:
            self._receive()
        found, _, self.unread = self.unread.partition(mark)
        return found

    def _exactly(self, count: int) -> bytes:
        while len(self.unread) < count:
            self._receive()
        found, self.unread = self.unread[:count], self.unread[count:]
        return found

    def _receive(self) -> None:
        data = self._socket.recv(1 << 18)
        if not data:
            raise BrokenError("the server closed the connection")
        self.unread += data


def _pair(line: str) -> tuple[str, str, str]:
    return line.partition(":")


def post_bytes(
    path: str, body: bytes, *headers: tuple[str, str], length: int | None = None
) -> bytes:
    """A POST; `length` announces another length than the body's."""
    announced = len(body) if length is None else length
    named = (("host", "test"), *headers, ("content-length", str(announced)))
    lines = "".join(f"{name}: {value}\r\n" for name, value in named)
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body
