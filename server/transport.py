"""Runs an application on granian's embedded server. The only file that knows granian."""

import asyncio
import socket
from typing import Any, Protocol

from granian.constants import HTTPModes
from granian.net import SocketHolder  # type: ignore[attr-defined]  # not in its __all__
from granian.server.embed import Server

from infinity_v3.server.exchange import HttpProtocol, Scope
from infinity_v3.server.sockets import BACKLOG

# The transport stops accepting at this many connections; refusals must be answers of ours, so it is
# far above what is admitted. Idle keep-alive connections count, too.
_MIN_CONNECTIONS = 16384


class RsgiApp(Protocol):
    """What granian calls."""

    async def __rsgi__(self, scope: Scope, protocol: HttpProtocol) -> None: ...


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
