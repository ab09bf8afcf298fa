"""Reads request bodies under limits of bytes, time and memory. Knows nothing of what they hold."""

import asyncio
import time
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

from infinity_v3.runtime.errors import ErrorKind
from infinity_v3.server.body_weight import weight_bytes
from infinity_v3.server.compression import TooLongError, inflate
from infinity_v3.server.errors import HttpError, HttpErrorKind
from infinity_v3.server.exchange import Exchange
from infinity_v3.server.negotiation import request_coding, request_media_type

BODY_BUDGET_BYTES = 1 << 30
EXTRA_BODIES = 64
_EXPANSION = 8
"""Of a body on its way, whose content is not known yet."""
# A refused client that is still sending must be read on for a while, or it never sees the answer.
_DISCARD_FACTOR = 4
_PAUSE_S = 1.0
"""Who sends nothing for so long waits for the refusal."""

_T = TypeVar("_T")


class BodyGate:
    """Bounds how many bodies are read at once and how many bytes they take. Event loop only."""

    def __init__(self, *, max_bodies: int, max_bytes: int = BODY_BUDGET_BYTES) -> None:
        self.max_bodies = max_bodies
        self.max_bytes = max_bytes
        self.num_bodies = 0
        self.num_bytes = 0

    def enter(self) -> "Lease":
        """Count one body while it is read and parsed, which is until the lease ends.

        Raises:
            HttpError: 429, too many bodies are being read.
        """
        if self.num_bodies >= self.max_bodies:
            raise _overloaded(
                f"{self.num_bodies} request bodies are being read (limit: "
                f"--max-concurrent-requests of all models + {EXTRA_BODIES})"
            )
        self.num_bodies += 1
        return Lease(self)


@dataclass(slots=True)
class Lease:
    """The share of one body in the budget; as a context manager it ends with the block."""

    gate: BodyGate
    num_bytes: int = 0

    def __enter__(self) -> "Lease":
        return self

    def __exit__(self, *_: object) -> None:
        self.gate.num_bodies -= 1
        self.gate.num_bytes -= self.num_bytes

    def hold(self, num_bytes: int) -> None:
        """Raise this body's share to `num_bytes`; alone it may exceed the budget.

        Raises:
            HttpError: 429, the budget is used up.
        """
        more = num_bytes - self.num_bytes
        if more <= 0:
            return
        others = self.gate.num_bytes - self.num_bytes
        if others and others + num_bytes > self.gate.max_bytes:
            raise _overloaded("request bodies being read use up their memory budget")
        self.gate.num_bytes += more
        self.num_bytes = num_bytes


def _overloaded(reason: str) -> HttpError:
    return HttpError(
        ErrorKind.OVERLOADED, f"Model is overloaded: {reason}", headers=(("retry-after", "1"),)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RawBody:
    """An inflated body and its media type."""

    data: bytes
    media_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyReader:
    """Reads bodies with the limits of the configuration."""

    limit_bytes: int
    timeout_s: float

    async def read(self, exchange: Exchange, lease: Lease) -> RawBody:
        """Read and inflate one body.

        Raises:
            HttpError: 415, 413, 408, 400 or 429.
        """
        media_type = request_media_type(exchange.header("content-type"))
        coding = request_coding(exchange.header("content-encoding"))
        data = await self._receive(exchange, lease)
        try:
            inflated = inflate(data, coding, self.limit_bytes)
        except TooLongError:
            raise self._too_large() from None
        lease.hold(weight_bytes(inflated, media_type))
        return RawBody(data=inflated, media_type=media_type)

    async def discard(self, exchange: Exchange) -> bool:
        """Throw away a body that nobody took, as far as a refused body is read on.

        Answering earlier would make the transport cut the connection while the client is still
        sending, and the answer would be lost.

        Returns:
            Whether the connection can carry another request.
        """
        if exchange.is_body_taken or not _announces_body(exchange):
            return True
        if _expects_continue(exchange):
            return False
        return await self._skip(exchange)

    async def _skip(self, exchange: Exchange) -> bool:
        """Read on what a client sends, until it ends, pauses, or goes on for too long.

        Returns:
            Whether it ended.
        """
        if exchange.begun_body is not None:
            return await self._outlast(exchange.begun_body)
        deadline_s = time.monotonic() + self.timeout_s
        chunks, total = aiter(exchange.protocol), 0
        while (left_s := deadline_s - time.monotonic()) > 0.0:
            try:
                total += len(await within(anext(chunks), min(left_s, _PAUSE_S)))
            except StopAsyncIteration:
                return True
            except HttpError:
                return False
            if total > _DISCARD_FACTOR * self.limit_bytes:
                return False
        return False

    async def _outlast(self, body: Awaitable[bytes]) -> bool:
        """Wait for a short body that nobody wants; False when it did not come."""
        try:
            await within(body, min(self.timeout_s, _PAUSE_S))
        except HttpError:
            return False
        return True

    async def _receive(self, exchange: Exchange, lease: Lease) -> bytes:
        exchange.is_body_taken = True
        announced = _content_length(exchange)
        if announced is not None and announced <= self.limit_bytes:
            lease.hold(announced * _EXPANSION)
            return await self._whole(exchange)
        if announced is not None:
            if announced <= _DISCARD_FACTOR * self.limit_bytes and not _expects_continue(exchange):
                await self._skip(exchange)
            raise self._too_large()
        return await within(self._collect(exchange, lease), self.timeout_s)

    async def _whole(self, exchange: Exchange) -> bytes:
        if exchange.begun_body is None:
            return await within(exchange.protocol(), self.timeout_s)
        found = _at_once(exchange.begun_body)
        return await within(exchange.begun_body, self.timeout_s) if found is None else found

    async def _collect(self, exchange: Exchange, lease: Lease) -> bytes:
        """Gather chunks; past the limit they are read on and thrown away before the refusal."""
        chunks: list[bytes] = []
        total = 0
        async for chunk in exchange.protocol:
            total += len(chunk)
            if total > _DISCARD_FACTOR * self.limit_bytes:
                break
            if total <= self.limit_bytes:
                lease.hold(total * _EXPANSION)
                chunks.append(chunk)
            else:
                chunks.clear()
        if total > self.limit_bytes:
            raise self._too_large()
        return b"".join(chunks)

    def _too_large(self) -> HttpError:
        return HttpError(
            HttpErrorKind.PAYLOAD_TOO_LARGE,
            f"the request body is larger than {self.limit_bytes} bytes (--payload-limit), before "
            "or after decompression",
            headers=(("connection", "close"),),
        )


def _content_length(exchange: Exchange) -> int | None:
    text = exchange.header("content-length")
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 19 else None


def _announces_body(exchange: Exchange) -> bool:
    length = exchange.header("content-length")
    return exchange.header("transfer-encoding") is not None or length not in {None, "0"}


def _expects_continue(exchange: Exchange) -> bool:
    return (exchange.header("expect") or "").lower() == "100-continue"


def _at_once(body: Awaitable[bytes]) -> bytes | None:
    """A body that is there; None = it is to be awaited, which its future still allows."""
    try:
        next(body.__await__())
    except StopIteration as end:
        data: bytes = end.value
        return data
    except RuntimeError:  # whoever awaits it sees the error again
        return None
    return None


async def within(awaitable: Awaitable[_T], timeout_s: float) -> _T:
    """Await the transport for at most that long.

    Raises:
        HttpError: 408, or 400 when the transport reports a broken connection.
    """
    try:
        with _Alarm(timeout_s) as alarm:
            return await awaitable
    except asyncio.CancelledError:
        if not alarm.has_rung:
            raise
        raise HttpError(
            ErrorKind.REQUEST_TIMEOUT,
            f"the request body did not arrive within {timeout_s:g} s (--body-read-timeout)",
            headers=(("connection", "close"),),
        ) from None
    except RuntimeError:  # the transport's errors are RuntimeErrors
        # The other half of the connection may be open still, so there is an answer.
        raise HttpError(
            HttpErrorKind.MALFORMED,
            "the connection broke off before the request body was whole",
            headers=(("connection", "close"),),
        ) from None


class _Alarm:
    """Cancels the current task after a while; `asyncio.wait_for` would start a task for it."""

    def __init__(self, timeout_s: float) -> None:
        self.has_rung = False
        self._timeout_s = timeout_s

    def __enter__(self) -> "_Alarm":
        task = asyncio.current_task()
        assert task is not None, "requests run in tasks; this is a bug"
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._ring, task)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _ring(self, task: "asyncio.Task[object]") -> None:
        self.has_rung = True
        task.cancel()
