"""What a service says about itself. Knows nothing of how it is shown."""

from dataclasses import dataclass
from enum import Enum


class ServiceState(str, Enum):
    """Where a service is in its life."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceStats:
    """A snapshot of load.

    Attributes:
        num_requests: occupied request slots.
        num_queued_items: items waiting for a batch.
        num_pending_items: admitted items without a result, waiting ones included.
        num_pending_tokens: their tokens, held against `max_queue_tokens`.
        tokens_per_s: tokens per second of engine time, recently; None before the first batch.
        last_batch_items, last_batch_tokens: size of the latest batch, 0 before the first.
    """

    num_requests: int
    max_requests: int
    num_queued_items: int
    num_pending_items: int
    num_pending_tokens: int
    max_queue_tokens: int
    tokens_per_s: float | None
    last_batch_items: int
    last_batch_tokens: int
