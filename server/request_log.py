"""The terminal record of a request: what it was, how it ended, how long it took. Never texts.

It goes to the request log as one JSON line, and at level debug to the log, too. Knows nothing of
routes.
"""

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path

import orjson

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.server.exchange import Exchange
from infinity_v3.server.trace_context import parse_traceparent

_log = logging.getLogger("infinity_v3")
_FAILURES = frozenset({"engine_error", "non_finite_output", "internal_error"})


class RequestLog:
    """Appends to a file; without a path only the log hears of requests. Event loop only."""

    def __init__(self, path: Path | None) -> None:
        self._descriptor: int | None = None
        self._num_lost = 0
        if path is not None:
            # Not to wait for the reader of a pipe, neither now nor when it falls behind.
            waits_not = os.O_CLOEXEC | os.O_NONBLOCK
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | waits_not
            try:
                self._descriptor = os.open(path, flags, 0o640)
            except OSError as error:
                raise RunFailedError(
                    f"--request-log {path}: cannot be opened: {error.strerror}; name a file in a "
                    "directory that this process can write to, or a pipe that is being read"
                ) from None

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def write(self, exchange: Exchange, *, status: int | None, error_code: str | None) -> None:
        """Record the end of an accepted request; `status` is None when the client left."""
        level = logging.WARNING if error_code in _FAILURES else logging.DEBUG
        is_told = _log.isEnabledFor(level)
        if self._descriptor is None and not is_told:
            return
        record = _record(exchange, status, error_code)
        if is_told:
            _log.log(level, "%s", _sentence(record), extra={"fields": record})
        if self._descriptor is not None:
            self._append(self._descriptor, orjson.dumps(record) + b"\n")

    def _append(self, descriptor: int, line: bytes) -> None:
        """A full disk costs records, not answers."""
        try:
            os.write(descriptor, line)
        except OSError as error:
            if not self._num_lost:
                _log.warning("--request-log: records are being lost: %s", error.strerror)
            self._num_lost += 1
            return
        if self._num_lost:
            _log.warning("--request-log: written again, %d records were lost", self._num_lost)
            self._num_lost = 0

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


def _record(exchange: Exchange, status: int | None, error_code: str | None) -> dict[str, object]:
    outcome = exchange.outcome
    trace = parse_traceparent(exchange.header("traceparent"))
    return {
        "event": "request",
        "time": round(time.time(), 3),
        "request_id": exchange.request_id,
        "trace_id": trace.trace_id if trace else None,
        "span_id": trace.span_id if trace else None,
        "method": exchange.method,
        "path": exchange.path,
        "model": outcome.model,
        "status": status,
        "error": error_code,
        "items": outcome.num_items,
        "tokens": outcome.num_tokens,
        "total_ms": round(exchange.elapsed_s * 1e3, 3),
        "tokenization_ms": round(outcome.tokenization_s * 1e3, 3),
        "queue_ms": round(outcome.queue_s * 1e3, 3),
        "inference_ms": round(outcome.inference_s * 1e3, 3),
    }


def _sentence(record: Mapping[str, object]) -> str:
    ending = (
        record["status"] if record["error"] is None else f"{record['status']} {record['error']}"
    )
    return (
        f"{record['method']} {record['path']} ended with {ending} in {record['total_ms']} ms; "
        f"request {record['request_id']}"
    )
