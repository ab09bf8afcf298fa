"""One admitted request while its items are under way: collects rows, decides how the request ends.

Lives on the event loop thread. Knows nothing of engines, batches or HTTP.
"""

import asyncio
from collections.abc import Sequence

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.limits import Admission
from infinity_v3.runtime.work import ItemFailure, Row, WorkItem, WorkOrder

RETRY_WHEN_NOT_READY_S = 5


class PendingRequest:
    """Receives the end of each item; `future` ends with the first failure or the last row.

    Every item gives its tokens back exactly once, also when the request has ended before it.
    `items` is empty once all have ended; `item_tokens` and `rows` stay.
    """

    def __init__(
        self,
        encoded: Sequence[EncodedText],
        order: WorkOrder,
        admission: Admission,
        registry: set["PendingRequest"],
    ) -> None:
        self.items = [
            WorkItem(encoded=text, position=position, order=order, receiver=self)
            for position, text in enumerate(encoded)
        ]
        self.deadline_s = order.deadline_s
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.item_tokens = tuple(item.num_tokens for item in self.items)
        self.rows: list[Row | None] = [None] * len(self.items)
        self.queue_s = 0.0
        self.inference_s = 0.0
        self._num_unfinished = len(self.items)
        self._num_unfinished_tokens = sum(self.item_tokens)
        self._admission = admission
        self._registry = registry
        registry.add(self)

    @property
    def num_unfinished(self) -> int:
        """Items that have not ended yet."""
        return self._num_unfinished

    def item_done(self, item: WorkItem, row: Row, *, queue_s: float, inference_s: float) -> None:
        if not self._finish(item) or self.future.done():
            return
        self.rows[item.position] = row
        self.queue_s += queue_s
        self.inference_s += inference_s
        if self._num_unfinished == 0:
            self.future.set_result(None)

    def item_failed(self, item: WorkItem, failure: ItemFailure) -> None:
        if self._finish(item):
            self.fail(
                InferenceError(ErrorKind.BACKEND, failure.code, failure.message, item=item.position)
            )

    def item_expired(self, item: WorkItem) -> None:
        self.item_dropped(item)
        self.fail(deadline_passed())

    def item_dropped(self, item: WorkItem) -> None:
        self._finish(item)

    def fail(self, error: InferenceError) -> None:
        """End the request with an error, unless it has ended."""
        if not self.future.done():
            self.future.set_exception(error)

    def abandon(self, error: InferenceError) -> None:
        """End the request although the engine still holds items; what comes later is ignored."""
        self.fail(error)
        self._admission.release_tokens(self._num_unfinished_tokens)
        self._num_unfinished = self._num_unfinished_tokens = 0
        self._settle()

    def retire(self) -> None:
        """Note that nobody reads the outcome, so that asyncio does not report an error as lost."""
        if self.future.done() and not self.future.cancelled():
            self.future.exception()

    def _finish(self, item: WorkItem) -> bool:
        if self._num_unfinished == 0:
            return False
        self._num_unfinished -= 1
        self._num_unfinished_tokens -= item.num_tokens
        self._admission.release_tokens(item.num_tokens)
        if self._num_unfinished == 0:
            self._settle()
        return True

    def _settle(self) -> None:
        self._registry.discard(self)
        # Items point back here; without this, only the garbage collector could free a request.
        self.items.clear()


def deadline_passed() -> InferenceError:
    message = "the request's deadline passed while it waited in the queue"
    return InferenceError(ErrorKind.REQUEST_TIMEOUT, "request_timeout", message)


def not_ready(message: str) -> InferenceError:
    return InferenceError(
        ErrorKind.UNHEALTHY, "not_ready", message, retry_after_s=RETRY_WHEN_NOT_READY_S
    )
