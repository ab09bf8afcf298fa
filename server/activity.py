"""What one model did lately: rates and latencies over sliding windows. Knows nothing of HTTP.

Feeding it costs some additions per request and per batch; all arithmetic is left to the
reader. Sums are kept by the second, latencies one by one, so percentiles are those of real requests
and no estimate from buckets.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

RATE_WINDOW_S = 10
LATENCY_WINDOW_S = 60
MAX_LATENCIES = 4096
"""Of a busy model the latest answers decide, however few seconds they span."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """A snapshot.

    Attributes:
        answers_per_s, refusals_per_s: requests of the rate window; refusals are error replies.
        items_per_s: items of the answers.
        tokens_per_s: tokens computed per second of wall-clock time.
        batches_per_s: engine batches.
        mean_batch_items: None without a batch in the window.
        mean_occupancy: batch tokens / max_batch_tokens; None without a batch in the window.
        busy_fraction: share of the window spent in engine calls, 0...1.
        p50_s, p99_s: of whole requests that were answered 200; None without one.
        num_latencies: answers behind those two.
    """

    answers_per_s: float
    refusals_per_s: float
    items_per_s: float
    tokens_per_s: float
    batches_per_s: float
    mean_batch_items: float | None
    mean_occupancy: float | None
    busy_fraction: float
    p50_s: float | None
    p99_s: float | None
    num_latencies: int


@dataclass(slots=True)
class _Sums:
    """What happened within one second, or several."""

    second: int = -1
    num_answers: int = 0
    num_refusals: int = 0
    num_items: int = 0
    num_tokens: int = 0
    num_batches: int = 0
    num_batch_items: int = 0
    occupancy: float = 0.0
    engine_s: float = 0.0

    def add(self, other: "_Sums") -> None:
        self.num_answers += other.num_answers
        self.num_refusals += other.num_refusals
        self.num_items += other.num_items
        self.num_tokens += other.num_tokens
        self.num_batches += other.num_batches
        self.num_batch_items += other.num_batch_items
        self.occupancy += other.occupancy
        self.engine_s += other.engine_s


class Activity:
    """Belongs to one thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun_s = clock()
        self._seconds = [_Sums() for _ in range(RATE_WINDOW_S)]
        self._latencies: deque[tuple[float, float]] = deque(maxlen=MAX_LATENCIES)

    def answered(self, total_s: float, num_items: int) -> None:
        """Count a request that was answered 200."""
        now_s = self._clock()
        sums = self._sums_of(int(now_s))
        sums.num_answers += 1
        sums.num_items += num_items
        self._latencies.append((now_s, total_s))

    def refused(self) -> None:
        """Count a request that was answered with an error."""
        self._sums_of(int(self._clock())).num_refusals += 1

    def batch_formed(self, num_items: int, occupancy: float) -> None:
        """Count a batch that goes to the engine."""
        sums = self._sums_of(int(self._clock()))
        sums.num_batches += 1
        sums.num_batch_items += num_items
        sums.occupancy += occupancy

    def batch_finished(self, num_tokens: int, engine_s: float) -> None:
        """Count an engine call that gave results."""
        sums = self._sums_of(int(self._clock()))
        sums.num_tokens += num_tokens
        sums.engine_s += engine_s

    def recent(self) -> Recent:
        """What the windows hold now."""
        now_s = self._clock()
        first = int(now_s) - RATE_WINDOW_S + 1
        total = _Sums()
        for sums in self._seconds:
            if sums.second >= first:
                total.add(sums)
        latencies = [s for moment, s in self._latencies if moment > now_s - LATENCY_WINDOW_S]
        # At least a second: the first request must not look like a burst.
        return _recent(total, max(1.0, now_s - max(first, self._begun_s)), sorted(latencies))

    def _sums_of(self, second: int) -> _Sums:
        place = second % RATE_WINDOW_S
        if self._seconds[place].second != second:
            self._seconds[place] = _Sums(second)
        return self._seconds[place]


def _recent(total: _Sums, elapsed_s: float, latencies: Sequence[float]) -> Recent:
    batches = total.num_batches
    return Recent(
        answers_per_s=total.num_answers / elapsed_s,
        refusals_per_s=total.num_refusals / elapsed_s,
        items_per_s=total.num_items / elapsed_s,
        tokens_per_s=total.num_tokens / elapsed_s,
        batches_per_s=batches / elapsed_s,
        mean_batch_items=total.num_batch_items / batches if batches else None,
        mean_occupancy=total.occupancy / batches if batches else None,
        busy_fraction=min(1.0, total.engine_s / elapsed_s),
        p50_s=_percentile(latencies, 0.5),
        p99_s=_percentile(latencies, 0.99),
        num_latencies=len(latencies),
    )


def _percentile(ascending: Sequence[float], fraction: float) -> float | None:
    """The nearest rank: a value that occurred."""
    if not ascending:
        return None
    return ascending[max(0, math.ceil(fraction * len(ascending)) - 1)]
