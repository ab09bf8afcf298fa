"""Watches a server while it is under load: memory, queue, tokens, the delay of a health probe.

Knows nothing of what the figures should be.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from http_client import HttpClient
from http_metrics import read_metrics, series
from server_process import ServerProcess

PERIOD_S = 1.0
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Sample:
    """The server at one moment, seconds from the start of the watch."""

    at_s: float
    rss_mb: float
    queue_tokens: float
    num_in_flight: float
    tokens_total: float
    health_s: float


class LoadObserver:
    """Samples once a second on a thread inside the block.

    Attributes:
        samples: in order.
        problems: what kept a sample from being taken.
    """

    def __init__(self, server: ServerProcess) -> None:
        self.samples: list[Sample] = []
        self.problems: list[str] = []
        self._server = server
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._begun_s = time.monotonic()

    def __enter__(self) -> "LoadObserver":
        self._begun_s = time.monotonic()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join(30)

    def _watch(self) -> None:
        with HttpClient(self._server.base_url, timeout_s=20.0) as client:
            while not self._ended.wait(PERIOD_S):
                try:
                    self.samples.append(self._sample(client))
                except (OSError, AssertionError) as error:
                    self.problems.append(repr(error))

    def _sample(self, client: HttpClient) -> Sample:
        begun_s = time.monotonic()
        assert client.get("/health").status == 200, "/health is not 200 under load"
        health_s = time.monotonic() - begun_s
        metrics = read_metrics(client)
        return Sample(
            at_s=begun_s - self._begun_s,
            rss_mb=self._server.rss_bytes / MB,
            queue_tokens=series(metrics, "infinity_queue_tokens{"),
            num_in_flight=series(metrics, "infinity_requests_in_flight{"),
            tokens_total=series(metrics, "infinity_tokens_total{"),
            health_s=health_s,
        )


def slope_per_minute(samples: Sequence[Sample], *, from_s: float) -> float:
    """MB of resident memory per minute: least squares over the samples after the warm-up."""
    chosen = [sample for sample in samples if sample.at_s >= from_s]
    if len(chosen) < 2:
        return 0.0
    mean_s = sum(sample.at_s for sample in chosen) / len(chosen)
    mean_mb = sum(sample.rss_mb for sample in chosen) / len(chosen)
    above = sum((sample.at_s - mean_s) * (sample.rss_mb - mean_mb) for sample in chosen)
    below = sum((sample.at_s - mean_s) ** 2 for sample in chosen)
    return 60.0 * above / below


def slowest_tokens_per_s(samples: Sequence[Sample], *, window_s: float) -> float:
    """The least token rate over any window of about that length."""
    rates = []
    for first in samples:
        later = [sample for sample in samples if sample.at_s - first.at_s >= window_s]
        if later:
            spent_s = later[0].at_s - first.at_s
            rates.append((later[0].tokens_total - first.tokens_total) / spent_s)
    return min(rates, default=0.0)
