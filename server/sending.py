"""Puts a reply on the wire: common headers and compression. Knows nothing of routes."""

import asyncio

from infinity_v3.server.compression import deflate
from infinity_v3.server.errors import Headers
from infinity_v3.server.exchange import Exchange, Reply
from infinity_v3.server.negotiation import Coding, reply_coding

# Above this size compressing would hold up the event loop; the libraries release the GIL.
_THREAD_BYTES = 256 * 1024
_VARY = ("vary", "Accept, Accept-Encoding, Origin")


async def send(exchange: Exchange, reply: Reply, headers: Headers, threshold: int | None) -> None:
    """Send a reply; a client that has left meanwhile is no error.

    Args:
        exchange: the request.
        reply: the answer.
        headers: headers of every reply of this server.
        threshold: least body size to compress; None = never.
    """
    body = reply.body
    merged = dict((*exchange.echoed_headers(), _VARY, *headers, *reply.headers))
    if body:
        merged["content-type"] = reply.content_type
        if reply.may_compress and threshold is not None and len(body) >= threshold:
            coding = reply_coding(exchange.header("accept-encoding"))
            if coding is not Coding.IDENTITY:
                body = await _deflate(body, coding)
                merged["content-encoding"] = coding.value
    if body:
        exchange.protocol.response_bytes(reply.status, list(merged.items()), body)
    else:
        exchange.protocol.response_empty(reply.status, list(merged.items()))


async def _deflate(body: bytes, coding: Coding) -> bytes:
    if len(body) < _THREAD_BYTES:
        return deflate(body, coding)
    return await asyncio.get_running_loop().run_in_executor(None, deflate, body, coding)
