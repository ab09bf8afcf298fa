"""Several requests that share one slot and are admitted together or not at all.

Each of them runs as it would alone, up to the queue. There it waits for the others; when all have
come, their tokens are admitted in one decision. Belongs to the event loop thread.
"""

import asyncio
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.dispatcher import Dispatcher
from infinity_v3.runtime.errors import DisbandedError, InferenceError
from infinity_v3.runtime.pending import PendingRequest
from infinity_v3.runtime.requests import Schedule
from infinity_v3.runtime.work import Readout


@dataclass(slots=True, kw_only=True)
class _Arrival:
    """A request that has come to the queue; `pending` once it is in it."""

    encoded: Sequence[EncodedText]
    schedule: Schedule
    readout: Readout
    pending: PendingRequest | None = None

    @property
    def num_tokens(self) -> int:
        return sum(text.num_tokens for text in self.encoded)


class JointQueue:
    """The queue as one group of requests sees it.

    Attributes:
        refusal: why the group as a whole was not admitted; None = it was, or nobody asked yet.
    """

    def __init__(self, dispatcher: Dispatcher, *, num_requests: int) -> None:
        self.refusal: InferenceError | None = None
        self._dispatcher = dispatcher
        self._num_expected = num_requests
        self._num_left = 0
        self._arrivals: list[_Arrival] = []
        self._decided = asyncio.Event()
        self._held = ExitStack()
        self._has_slot = False

    def slot(self) -> AbstractContextManager[float]:
        """Hold the slot of the group: the first request takes it, `close` gives it back.

        Raises:
            InferenceError: OVERLOADED.
        """
        if self.refusal is not None:
            raise self.refusal
        if not self._has_slot:
            try:
                self._held.enter_context(self._dispatcher.slot())
            except InferenceError as error:
                self.refusal = error
                raise
            self._has_slot = True
        return nullcontext(time.monotonic())

    async def run(
        self, encoded: Sequence[EncodedText], schedule: Schedule, readout: Readout
    ) -> PendingRequest:
        """Queue the items of one request with those of the others, and wait until it has ended.

        Raises:
            InferenceError: the group was refused, or this request failed.
            DisbandedError: another request of the group left.
        """
        arrival = _Arrival(encoded=encoded, schedule=schedule, readout=readout)
        self._arrivals.append(arrival)
        self._decide_if_complete()
        try:
            await self._decided.wait()
        except asyncio.CancelledError:
            if arrival.pending is not None:
                self._dispatcher.forget(arrival.pending)
            raise
        if self.refusal is not None:
            raise self.refusal
        if arrival.pending is None:
            raise DisbandedError("another request of the group was refused")
        return await self._dispatcher.finish(arrival.pending)

    def leave(self) -> None:
        """Say that a request has ended without a result: the others need not wait for it."""
        self._num_left += 1
        self._decide_if_complete()

    def close(self) -> None:
        """Give the slot back."""
        self._held.close()

    def _decide_if_complete(self) -> None:
        if self._decided.is_set() or len(self._arrivals) + self._num_left < self._num_expected:
            return
        if self._num_left == 0:
            self._queue_all()
        self._decided.set()

    def _queue_all(self) -> None:
        try:
            self._dispatcher.admit(sum(arrival.num_tokens for arrival in self._arrivals))
        except InferenceError as error:
            self.refusal = error
            return
        for arrival in self._arrivals:
            arrival.pending = self._dispatcher.queue(
                arrival.encoded, arrival.schedule, arrival.readout
            )
