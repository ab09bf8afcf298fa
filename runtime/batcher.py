"""Groups waiting items into batches under a token budget, first in first out.

Knows nothing of threads, engines or clocks: callers pass the time in and hold their own lock.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from infinity_v3.runtime.work import WorkItem

MIN_SHELLS_TO_COMPACT = 64
MIN_SHARE_TOKENS = 64
"""Halving less than twice this gains no time: a call this small takes as long for half of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """Bounds of one batch.

    Attributes:
        fill_tokens: a batch is filled up to this; one longer item goes alone.
        max_tokens: no batch, and so no item, is larger.
        max_items: no batch holds more items.
    """

    fill_tokens: int
    max_tokens: int
    max_items: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NextBatch:
    """Items to run now, in queue order, and the items met on the way whose deadline had passed."""

    items: tuple[WorkItem, ...]
    expired: tuple[WorkItem, ...]

    @property
    def is_empty(self) -> bool:
        return not self.items and not self.expired


class Batcher:
    """Two queues, normal and priority; the head with the larger (waiting + bonus) leaves first.

    Every operation costs amortised O(1) per item. A dropped item leaves the counters at once and
    its place in the queue later.
    """

    def __init__(self, limits: BatchLimits, *, priority_bonus_s: float) -> None:
        self._limits = limits
        self._normal = _Lane(bonus_s=0.0)
        self._priority = _Lane(bonus_s=priority_bonus_s)
        self._num_appended = 0

    @property
    def num_items(self) -> int:
        """Items waiting, dropped ones not counted."""
        return self._normal.num_items + self._priority.num_items

    @property
    def num_tokens(self) -> int:
        """Tokens of the items waiting."""
        return self._normal.num_tokens + self._priority.num_tokens

    def append(self, items: Iterable[WorkItem]) -> None:
        """Queue items in order of arrival; each is within `max_tokens`."""
        for item in items:
            assert item.num_tokens <= self._limits.max_tokens, (
                "an item that fits no batch; this is a bug"
            )
            lane = self._priority if item.order.is_priority else self._normal
            lane.append(item, self._num_appended)
            self._num_appended += 1

    def drop(self, item: WorkItem) -> bool:
        """Take one item out of the queue; False when it has left it already."""
        if item.is_taken or item.is_dropped:
            return False
        lane = self._priority if item.order.is_priority else self._normal
        lane.drop(item)
        return True

    def next_batch(self, now_s: float, *, num_takers: int = 1) -> NextBatch:
        """Take the next batch: everything waiting, up to the fill budget and the item limit.

        Where several take batches at this moment, each takes its share, unless that is tiny.
        """
        items: list[WorkItem] = []
        expired: list[WorkItem] = []
        share = max(MIN_SHARE_TOKENS, -(-self.num_tokens // num_takers))
        budget = min(self._limits.fill_tokens, share)
        while len(items) < self._limits.max_items and (lane := self._next_lane()) is not None:
            item = lane.head()
            if _is_expired(item, now_s):
                self.drop(item)
                expired.append(item)
                continue
            if items and item.num_tokens > budget:
                break
            lane.take()
            items.append(item)
            budget -= item.num_tokens
        return NextBatch(items=tuple(items), expired=tuple(expired))

    def _next_lane(self) -> "_Lane | None":
        normal, priority = self._normal.head_rank(), self._priority.head_rank()
        if priority is None:
            return None if normal is None else self._normal
        return self._priority if normal is None or priority < normal else self._normal


def _is_expired(item: WorkItem, now_s: float) -> bool:
    return item.order.deadline_s is not None and item.order.deadline_s <= now_s


class _Lane:
    """One FIFO; dropped items stay as shells until they reach the head or outnumber the rest."""

    def __init__(self, *, bonus_s: float) -> None:
        self.num_items = 0
        self.num_tokens = 0
        self._bonus_s = bonus_s
        self._queue: deque[tuple[int, WorkItem]] = deque()

    def append(self, item: WorkItem, sequence: int) -> None:
        self._queue.append((sequence, item))
        self._count(item, 1)

    def drop(self, item: WorkItem) -> None:
        item.is_dropped = True
        self._count(item, -1)
        num_shells = len(self._queue) - self.num_items
        if num_shells >= MIN_SHELLS_TO_COMPACT and num_shells > self.num_items:
            self._queue = deque(entry for entry in self._queue if not entry[1].is_dropped)

    def head_rank(self) -> tuple[float, int] | None:
        """Smaller goes first: (arrival moved back by the bonus, sequence); None = nothing waits."""
        queue = self._queue
        while queue and queue[0][1].is_dropped:
            queue.popleft()
        if not queue:
            return None
        sequence, item = queue[0]
        return item.order.arrival_s - self._bonus_s, sequence

    def head(self) -> WorkItem:
        return self._queue[0][1]

    def take(self) -> None:
        _, item = self._queue.popleft()
        item.is_taken = True
        self._count(item, -1)

    def _count(self, item: WorkItem, sign: int) -> None:
        self.num_items += sign
        self.num_tokens += sign * item.num_tokens
