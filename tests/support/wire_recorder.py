"""Stands between a client and a server and keeps what both of them say. Standard library only."""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from urllib.parse import urlsplit

_CHUNK = 65536


class WireRecorder:
    """As a context manager it listens on loopback and passes bytes on, unchanged, both ways."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        assert parts.hostname is not None
        self._target = (parts.hostname, parts.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sent: list[bytes] = []
        self._received: list[bytes] = []
        self._ends: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._serve)]

    def __enter__(self) -> "WireRecorder":
        self._threads[0].start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Closing alone does not wake a thread that waits in accept(), nor one in recv().
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for end in self._ends:
            with suppress(OSError):  # closed by the peer already
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join()
        for end in self._ends:
            end.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    @property
    def sent(self) -> bytes:
        """What clients sent, connection after connection or mixed."""
        return b"".join(self._sent)

    @property
    def received(self) -> bytes:
        """What the server answered."""
        return b"".join(self._received)

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            server = socket.create_connection(self._target)
            self._ends += [client, server]
            self._start(client, server, self._sent)
            self._start(server, client, self._received)

    def _start(self, source: socket.socket, sink: socket.socket, kept: list[bytes]) -> None:
        thread = threading.Thread(target=_pass_on, args=(source, sink, kept))
        self._threads.append(thread)
        thread.start()


def _pass_on(source: socket.socket, sink: socket.socket, kept: list[bytes]) -> None:
    with suppress(OSError):  # either side is gone
        while chunk := source.recv(_CHUNK):
            kept.append(chunk)
            sink.sendall(chunk)
        sink.shutdown(socket.SHUT_WR)
