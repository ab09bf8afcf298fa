"""What the user decides about serving one model. Knows nothing of where the values came from."""

import os
from dataclasses import dataclass

MAX_QUEUE_BATCHES = 64
MIN_QUEUE_BATCHES = 2
MAX_QUEUE_S = 10.0
"""A queue that takes longer only hides overload."""
MAX_TOKENIZATION_WORKERS = 16


def default_tokenization_workers() -> int:
    """One less than the CPUs this process may use, 1 to 16: one stays free for the event loop."""
    return min(max(len(os.sched_getaffinity(0)) - 1, 1), MAX_TOKENIZATION_WORKERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSettings:
    """Limits of one model's service.

    Attributes:
        max_concurrent_requests: requests under way; one more is refused.
        max_queue_tokens: admitted, unfinished tokens; None = see `queue_tokens`.
        max_batch_requests: most items in one batch; None = what the engine takes.
        priority_bonus_s: head start of priority requests in the queue; 0 = plain FIFO.
        tokenization_workers: threads that tokenise large requests; None = CPUs - 1, 1 to 16.
        is_truncating: too long inputs are cut when a request does not say.
    """

    max_concurrent_requests: int = 512
    max_queue_tokens: int | None = None
    max_batch_requests: int | None = None
    priority_bonus_s: float = 1.0
    tokenization_workers: int | None = None
    is_truncating: bool = True

    def queue_tokens(self, max_batch_tokens: int, tokens_per_s: float | None) -> int:
        """The bound on queued tokens in force; by default no more than can be worked off in time.

        Args:
            max_batch_tokens: the ceiling of one batch.
            tokens_per_s: measured throughput, if it is known.
        """
        if self.max_queue_tokens is not None:
            return self.max_queue_tokens
        most = MAX_QUEUE_BATCHES * max_batch_tokens
        if tokens_per_s is None:
            return most
        in_time = int(MAX_QUEUE_S * tokens_per_s)
        return max(MIN_QUEUE_BATCHES * max_batch_tokens, min(most, in_time))
