"""One request and its reply as the server sees them. Knows nothing of routes or models."""

import asyncio
import itertools
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from infinity_v3.server.errors import Headers
from infinity_v3.server.negotiation import JSON_TYPE

_REQUEST_ID = re.compile(r"[\x20-\x7e]{1,128}")
_TYPED_ID = "x-typesafe-request-id"
_ECHOED = ("x-baseten-customer-request-id", _TYPED_ID)


class ScopeHeaders(Protocol):
    """Request headers; names are lower case."""

    def get(self, key: str, default: str | None = None) -> str | None: ...


class Scope(Protocol):
    """The transport's description of a request; `path` is percent-decoded."""

    proto: str
    method: str
    path: str
    query_string: str
    headers: ScopeHeaders


class DisconnectWatch(Protocol):
    """A future that ends when the client has left."""

    def add_done_callback(self, callback: Callable[[object], object]) -> None: ...

    def cancel(self) -> bool: ...


class HttpProtocol(Protocol):
    """The transport's side of one exchange. One `response_*` call ends it."""

    def __call__(self) -> Awaitable[bytes]: ...

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    def client_disconnect(self) -> DisconnectWatch: ...

    def response_empty(self, status: int, headers: list[tuple[str, str]]) -> None: ...

    def response_bytes(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer. An empty body is sent without Content-Type."""

    status: int = 200
    body: bytes = b""
    content_type: str = JSON_TYPE
    headers: Headers = ()
    may_compress: bool = True


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What headers, metrics and the terminal record say about a request; filled in as it is known.

    Attributes:
        is_inference: it was parsed, found its model and asks for inference.
        is_counted: its items are counted; so are the ways in which it ends.
        is_scoring: its items are predictions rather than vectors.
        num_characters: characters of texts, ids of id arrays.
        total_s: until the answer was made.
    """

    model: str = ""
    is_inference: bool = False
    is_counted: bool = False
    is_batch: bool = False
    is_scoring: bool = False
    num_items: int = 0
    num_characters: int = 0
    num_tokens: int = 0
    total_s: float = 0.0
    tokenization_s: float = 0.0
    queue_s: float = 0.0
    inference_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Exchange:
    """One request under way.

    Attributes:
        task: the one that answers it.
        begun_body: one that the transport is reading already; nothing else can read it then.
    """

    method: str
    path: str
    query: str
    headers: ScopeHeaders
    protocol: HttpProtocol
    request_id: str
    started_s: float
    task: "asyncio.Task[Any]"
    begun_body: Awaitable[bytes] | None = None
    is_body_taken: bool = False
    has_large_body: bool = False
    outcome: Outcome = field(default_factory=Outcome)

    @classmethod
    def of(
        cls, scope: Scope, protocol: HttpProtocol, begun_body: Awaitable[bytes] | None = None
    ) -> "Exchange":
        """Describe what the transport handed over to the current task."""
        task = asyncio.current_task()
        assert task is not None, "requests run in tasks; this is a bug"
        return cls(
            method=scope.method,
            path=scope.path,
            query=scope.query_string,
            headers=scope.headers,
            protocol=protocol,
            request_id=_request_id(scope.headers),
            started_s=time.monotonic(),
            task=task,
            begun_body=begun_body,
        )

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.started_s

    def header(self, name: str) -> str | None:
        """Value of a request header; `name` in lower case."""
        return self.headers.get(name)

    def echoed_headers(self) -> Headers:
        """The request id and the identifiers of gateways, as they came."""
        echoed = [("x-request-id", self.request_id)]
        for name in _ECHOED:
            value = self.headers.get(name)
            if value and _REQUEST_ID.fullmatch(value):
                echoed.append((name, value))
        return tuple(echoed)

    def typed_id(self) -> Headers:
        """The request id where clients of typed decisions look for one, unless they sent one."""
        is_given = any(name == _TYPED_ID for name, _ in self.echoed_headers())
        return () if is_given else ((_TYPED_ID, self.request_id),)


def _request_id(headers: ScopeHeaders) -> str:
    given = headers.get("x-request-id")
    return given if given and _REQUEST_ID.fullmatch(given) else _new_request_id()


_RUN_ID = os.urandom(8).hex()
_numbers = itertools.count(1)


def _new_request_id() -> str:
    """32 hexadecimal digits: half of them this process's own, half of them a number."""
    return f"{_RUN_ID}{next(_numbers):016x}"
