"""Asks a server over one keep-alive connection. Knows nothing of what the requests mean."""

from types import TracebackType

from fuzz_checks import FuzzAnswer, failure
from fuzz_requests import FuzzRequest
from raw_http import TIMEOUT_S, BrokenError, RawHttp, post_bytes


class LiveConnection:
    """One connection, opened when first used and again after the server closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._raw: RawHttp | None = None

    def __enter__(self) -> "LiveConnection":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def ask(self, request: FuzzRequest) -> FuzzAnswer:
        """Send one request and read its one answer.

        Raises:
            FuzzFailure: no whole answer came, or more than one.
        """
        self._raw = self._raw or RawHttp(self._port)
        try:
            self._raw.send(post_bytes(request.path, request.body, *request.headers))
            raw = self._raw.answer()
        except TimeoutError:
            raise failure(request, None, f"no answer within {TIMEOUT_S:g} s") from None
        except (OSError, BrokenError, ValueError) as error:
            self.close()
            raise failure(request, None, f"no whole answer: {error!r}") from None
        answer = FuzzAnswer(status=raw.status, headers=raw.headers, body=raw.body)
        if self._raw.unread:
            raise failure(request, answer, f"{len(self._raw.unread)} bytes after the answer")
        if raw.headers.get("connection") == "close":
            self.close()
        return answer

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()
        self._raw = None
