"""A client that keeps its connection, for tests that ask often."""

import http.client
import json
from collections.abc import Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from server_process import Reply

Json = Any
"""A decoded document whose shape the test knows."""

JSON_HEADERS: Mapping[str, str] = {"content-type": "application/json"}


class HttpClient:
    """One connection to one server; opened when first used, and again after the server closed it.

    A connection that ends before the whole answer has come raises `http.client.HTTPException` or
    `OSError`: nothing is ever sent twice.
    """

    def __init__(self, base_url: str, *, timeout_s: float = 60.0) -> None:
        self.base_url = base_url
        self._connection = http.client.HTTPConnection(urlsplit(base_url).netloc, timeout=timeout_s)

    def __enter__(self) -> "HttpClient":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self.request("GET", path, headers=headers)

    def post(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Reply:
        """Send JSON, or bytes as they are."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.request("POST", path, data, {**JSON_HEADERS, **(headers or {})})

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        """Send exactly these headers, beside Host and Content-Length, and read the answer."""
        try:
            self._connection.request(method, path, body, dict(headers or {}))
            answer = self._connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(status=answer.status, headers=found, body=answer.read())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self._connection.close()
