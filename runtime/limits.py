"""Admission: how many requests and tokens may be under way, and how long the refused should wait.

Lives on the event loop thread, so it needs no lock. Knows nothing of queues, engines or HTTP.
"""

import math

from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError, Limit

MIN_RETRY_AFTER_S = 1
MAX_RETRY_AFTER_S = 60
THROUGHPUT_MEMORY = 0.9
"""Weight that the past keeps with each new batch: the last ten batches or so decide."""


class ThroughputMeter:
    """Tokens per second of engine time over the most recent batches."""

    def __init__(self) -> None:
        self._tokens = 0.0
        self._seconds = 0.0

    @property
    def tokens_per_s(self) -> float | None:
        """None until a batch has been measured."""
        return self._tokens / self._seconds if self._seconds > 0.0 else None

    def record(self, *, num_tokens: int, engine_s: float) -> None:
        """Add one engine call that gave results."""
        self._tokens = self._tokens * THROUGHPUT_MEMORY + num_tokens
        self._seconds = self._seconds * THROUGHPUT_MEMORY + engine_s


class Admission:
    """Counts request slots and admitted, unfinished tokens; admits requests whole or not."""

    def __init__(
        self, *, max_requests: int, max_queue_tokens: int, throughput: ThroughputMeter
    ) -> None:
        self.max_requests = max_requests
        self.max_queue_tokens = max_queue_tokens
        self.num_requests = 0
        self.num_tokens = 0
        self._throughput = throughput

    def take_slot(self) -> None:
        """Occupy one request slot.

        Raises:
            InferenceError: OVERLOADED, all slots are taken.
        """
        if self.num_requests >= self.max_requests:
            raise self._overloaded(
                Limit.REQUESTS,
                f"all {self.max_requests} request slots are taken (--max-concurrent-requests)",
            )
        self.num_requests += 1

    def release_slot(self) -> None:
        """Free the slot of a request that has ended."""
        self.num_requests -= 1
        assert self.num_requests >= 0, "a slot was freed twice; this is a bug"

    def admit_tokens(self, num_tokens: int) -> None:
        """Count all tokens of one request, or none of them.

        Raises:
            InferenceError: VALIDATION when not even an empty queue could hold them, OVERLOADED when
                this one cannot.
        """
        if num_tokens > self.max_queue_tokens:
            raise InferenceError(
                ErrorKind.VALIDATION,
                "input_too_long",
                f"the request has {num_tokens} tokens in all, more than the queue ever holds: "
                f"{self.max_queue_tokens} (--max-queue-tokens); send it in parts",
                field=ITEMS_FIELD,
            )
        if self.num_tokens + num_tokens > self.max_queue_tokens:
            raise self._overloaded(
                Limit.TOKENS,
                f"{self.num_tokens} of {self.max_queue_tokens} tokens are under way, "
                f"the request has {num_tokens} (--max-queue-tokens)",
            )
        self.num_tokens += num_tokens

    def release_tokens(self, num_tokens: int) -> None:
        """Give back the tokens of an item that finished, failed or was dropped."""
        self.num_tokens -= num_tokens
        assert self.num_tokens >= 0, "tokens were given back twice; this is a bug"

    def retry_after_s(self) -> int:
        """Whole seconds until the tokens under way are worked off, 1 to 60."""
        rate = self._throughput.tokens_per_s
        if not rate:
            return MIN_RETRY_AFTER_S
        return min(max(math.ceil(self.num_tokens / rate), MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)

    def _overloaded(self, limit: Limit, reason: str) -> InferenceError:
        return InferenceError(
            ErrorKind.OVERLOADED,
            "overloaded",
            f"Model is overloaded: {reason}",
            limit=limit,
            retry_after_s=self.retry_after_s(),
        )
