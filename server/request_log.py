"""The request log: one JSON line when a request ends. Holds counts and times, never texts."""

import os
import time
from pathlib import Path

import orjson

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.server.exchange import Exchange


class RequestLog:
    """Appends to a file; without a path it writes nothing. Event loop only."""

    def __init__(self, path: Path | None) -> None:
        self._descriptor: int | None = None
        if path is not None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            try:
                self._descriptor = os.open(path, flags, 0o640)
            except OSError as error:
                raise RunFailedError(
                    f"--request-log {path}: cannot be opened: {error.strerror}; name a file in a "
                    "directory that this process can write to"
                ) from None

    @property
    def is_open(self) -> bool:
        return self._descriptor is not None

    def write(self, exchange: Exchange, *, status: int | None, error_code: str | None) -> None:
        """Record the end of an accepted request; `status` is None when the client left."""
        if self._descriptor is None:
            return
        outcome = exchange.outcome
        record = {
            "time": round(time.time(), 3),
            "request_id": exchange.request_id,
            "traceparent": exchange.header("traceparent"),
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
        os.write(self._descriptor, orjson.dumps(record) + b"\n")

    def close(self) -> None:
        """Close the file."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
