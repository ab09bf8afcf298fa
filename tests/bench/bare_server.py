"""A server that reads a body and sends a fixed reply: what the transport takes by itself.

Usage: bare_server.py NUM_BYTES. Writes its port to standard output and serves until it is killed.
"""

import asyncio
import socket
import sys
from collections.abc import Awaitable

import uvloop

from infinity_v3.server.exchange import HttpProtocol, Scope
from infinity_v3.server.transport import Transport

HEADERS = [("content-type", "application/json"), *((f"x-header-{i}", "0") for i in range(12))]
"""As many as a reply of the real server has."""


class FixedReply:
    """Answers every request alike.

    Args:
        num_bytes: of the body.
    """

    def __init__(self, num_bytes: int) -> None:
        self._body = b" " * num_bytes

    async def __rsgi__(
        self, scope: Scope, protocol: HttpProtocol, body: Awaitable[bytes] | None = None
    ) -> None:
        """Serve one exchange; the transport's entry point."""
        await (protocol() if body is None else body)
        protocol.response_bytes(200, HEADERS, self._body)


async def main() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    app = FixedReply(int(sys.argv[1]))
    Transport(app, listener, with_http2=False, max_requests=1).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main())
