"""Runs an application on granian's embedded server. The only file that knows granian."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

from granian.constants import HTTPModes
from granian.net import SocketHolder  # type: ignore[attr-defined]  # not in its __all__
from granian.server import embed
from granian.server.embed import Server

from infinity_v3.server.exchange import HttpProtocol, Scope
from infinity_v3.server.sockets import BACKLOG

# The transport stops accepting at this many connections; refusals must be answers of ours, so it is
# far above what is admitted. Idle keep-alive connections count, too.
_MIN_CONNECTIONS = 16384
MAX_BEGUN_BYTES = 8192
"""Bodies that are announced to be no longer than this have mostly come along with their headers."""

_Wrap = Callable[..., Callable[["_Watcher"], object]]
"""Of what answers a request to what granian calls on a thread of its own, for a coroutine."""


class RsgiApp(Protocol):
    """What granian calls; `body` is that of a short request, already on its way."""

    async def __rsgi__(
        self, scope: Scope, protocol: HttpProtocol, body: Awaitable[bytes] | None = None
    ) -> None: ...


class _Watcher(Protocol):
    """How granian follows one request."""

    @property
    def scope(self) -> Scope: ...

    @property
    def proto(self) -> HttpProtocol: ...


def begin_body(scope: Scope, protocol: HttpProtocol) -> Awaitable[bytes] | None:
    """Have a short body read that the client sends without being asked; None for any other.

    What is read must be awaited, or nobody can read it.
    """
    length = scope.headers.get("content-length")
    if not length or len(length) > 4 or not (length.isascii() and length.isdigit()):
        return None
    if not 0 < int(length) <= MAX_BEGUN_BYTES or scope.headers.get("expect"):
        return None
    return protocol()


def _begin_bodies(wrap: _Wrap) -> _Wrap:
    """Extend granian's own wrapper: it hands bodies over that it began to read.

    An application that asks for its body waits until two threads of granian's and its own event
    loop have woken one another, a seventh of the time of a short request. Asked for before the
    event loop hears of the request, the body is there when the application asks.
    """

    def extended(inner: Callable[..., object]) -> Callable[[_Watcher], object]:
        def begin(watcher: _Watcher) -> object:
            body = begin_body(watcher.scope, watcher.proto)
            return wrap(partial(inner, body=body))(watcher)

        return begin

    return extended


# There is no public place for it. Without this one, applications ask for their bodies themselves.
if hasattr(embed, "_future_watcher_wrapper"):
    embed._future_watcher_wrapper = _begin_bodies(embed._future_watcher_wrapper)


class _BoundServer(Server):
    """A server on a socket of ours.

    granian binds with SO_REUSEPORT, which would let two servers share one port unnoticed.
    """

    def listen_on(self, listener: socket.socket) -> None:
        """Use this socket; called before `serve`."""
        self._listener = listener

    def _init_shared_socket(self) -> None:
        holder: Any = SocketHolder(self._listener.detach(), False, BACKLOG)  # type: ignore[call-arg]
        self._shd, self._sfd, self._ssp = holder, holder.get_fd(), None


class Transport:
    """One listener with its application. Event loop only."""

    def __init__(
        self, app: RsgiApp, listener: socket.socket, *, with_http2: bool, max_requests: int
    ) -> None:
        self._server = _BoundServer(
            target=app,
            http=HTTPModes.auto if with_http2 else HTTPModes.http1,
            websockets=False,
            log_enabled=False,
            backlog=BACKLOG,
            backpressure=max(_MIN_CONNECTIONS, 4 * max_requests),
        )
        self._server.listen_on(listener)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Accept connections from now on."""
        self._task = asyncio.get_running_loop().create_task(self._server.serve())

    async def stop(self, timeout_s: float) -> bool:
        """Finish what is being sent and close, once.

        Returns:
            False when the timeout came first.
        """
        task, self._task = self._task, None
        if task is None:
            return True
        self._server.stop()  # type: ignore[no-untyped-call]
        done, _ = await asyncio.wait({task}, timeout=timeout_s)
        return bool(done)
