"""Between event loop and engine thread: admits requests, hands items over, brings results back.

A brief request that is alone is computed at once instead, see `BriefCalls`.

All methods belong to the event loop thread. Knows nothing of texts or HTTP.
"""

import asyncio
import time
from collections.abc import Callable, Sequence

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.batcher import Batcher, BatchLimits
from infinity_v3.runtime.brief_calls import BriefCalls
from infinity_v3.runtime.errors import InferenceError
from infinity_v3.runtime.limits import Admission, ThroughputMeter
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.observer import Observer
from infinity_v3.runtime.pending import PendingRequest, deadline_passed, not_ready
from infinity_v3.runtime.requests import Schedule
from infinity_v3.runtime.settings import ServiceSettings
from infinity_v3.runtime.state import ServiceStats
from infinity_v3.runtime.team import TeamChoice
from infinity_v3.runtime.work import ItemFailure, Readout, WorkOrder
from infinity_v3.runtime.worker import BatchOutcome, EngineWorker, WorkerReports


class Dispatcher:
    """Owns the engine thread, the limits and the requests under way."""

    def __init__(self, model: LoadedModel, settings: ServiceSettings, observer: Observer) -> None:
        self._observer = observer
        self._throughput = ThroughputMeter()
        self._admission = Admission(
            max_requests=settings.max_concurrent_requests,
            max_queue_tokens=settings.queue_tokens(
                model.info.max_batch_tokens, model.measured_tokens_per_s
            ),
            throughput=self._throughput,
        )
        self._brief = BriefCalls()
        self._worker = _make_worker(model, settings, self._reports())
        self._pending: set[PendingRequest] = set()
        self._drained = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_draining = False
        self._is_aborted = False
        self._last_batch = (0, 0)

    @property
    def is_started(self) -> bool:
        return self._loop is not None

    @property
    def is_draining(self) -> bool:
        return self._is_draining

    @property
    def is_down(self) -> bool:
        """The engine thread died, or too many batches in a row failed."""
        return self._worker.is_down

    def start(self) -> None:
        """Start the engine thread; called once, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        self._worker.start()

    def slot(self) -> "Slot":
        """Hold one request slot while the context lasts.

        Raises:
            InferenceError: OVERLOADED.
        """
        self._admission.take_slot()
        return Slot(self._release_slot)

    def _release_slot(self) -> None:
        self._admission.release_slot()
        self._note_if_drained()

    async def run(
        self, encoded: Sequence[EncodedText], schedule: Schedule, readout: Readout
    ) -> PendingRequest:
        """Queue the items of one request, all of them or none, and wait until it has ended.

        Returns:
            The finished request with all its rows.

        Raises:
            InferenceError: refused, failed, or its deadline passed.
        """
        num_tokens = sum(text.num_tokens for text in encoded)
        self.admit(num_tokens)
        pending = self._pend(encoded, schedule, readout)
        is_brief = self._brief.asked(num_tokens, is_alone=schedule.is_alone)
        if not (is_brief and self._compute_now(pending)):
            self._worker.submit(pending.items)
        return await self.finish(pending)

    def admit(self, num_tokens: int) -> None:
        """Count the tokens of items that are queued next, without anything in between.

        Raises:
            InferenceError: refused.
        """
        if self._is_aborted:
            raise not_ready("the server is going down")
        self._admission.admit_tokens(num_tokens)

    def queue(
        self, encoded: Sequence[EncodedText], schedule: Schedule, readout: Readout
    ) -> PendingRequest:
        """Hand admitted items over to the engine thread; `finish` or `forget` has to follow."""
        pending = self._pend(encoded, schedule, readout)
        self._worker.submit(pending.items)
        return pending

    def _pend(
        self, encoded: Sequence[EncodedText], schedule: Schedule, readout: Readout
    ) -> PendingRequest:
        order = WorkOrder(
            readout=readout,
            arrival_s=time.monotonic(),
            is_priority=schedule.is_priority,
            deadline_s=schedule.deadline_s,
        )
        return PendingRequest(encoded, order, self._admission, self._pending)

    def _compute_now(self, pending: PendingRequest) -> bool:
        """Compute a request on this thread; False where it has to wait for an engine thread."""
        try:
            outcome = self._worker.compute_now(pending.items)
        except BaseException:
            self.abort_pending()
            pending.retire()
            raise
        if outcome is not None:
            self._receive(outcome)
        return outcome is not None

    async def finish(self, pending: PendingRequest) -> PendingRequest:
        """Wait until a queued request has ended.

        Raises:
            InferenceError: it failed, or its deadline passed.
        """
        if pending.num_unfinished:
            await self._wait(pending, pending.deadline_s)
        else:
            pending.future.result()
        return pending

    def forget(self, pending: PendingRequest) -> None:
        """Drop what of a queued request nobody waits for."""
        self._drop_queued(pending)
        pending.retire()

    def stats(self) -> ServiceStats:
        """A snapshot of load, for metrics and status pages."""
        num_items, num_tokens = self._last_batch
        return ServiceStats(
            num_requests=self._admission.num_requests,
            max_requests=self._admission.max_requests,
            num_queued_items=self._worker.num_queued_items,
            num_pending_items=sum(pending.num_unfinished for pending in self._pending),
            num_pending_tokens=self._admission.num_tokens,
            max_queue_tokens=self._admission.max_queue_tokens,
            tokens_per_s=self._throughput.tokens_per_s,
            last_batch_items=num_items,
            last_batch_tokens=num_tokens,
        )

    def begin_drain(self) -> None:
        """Admit nothing more; requests that hold a slot are finished."""
        self._is_draining = True
        self._note_if_drained()

    async def wait_drained(self, timeout_s: float) -> bool:
        """Wait until the last admitted request has ended; False when the time is over."""
        if self._drained.is_set() or timeout_s <= 0:
            return self._drained.is_set()
        try:
            await asyncio.wait_for(self._drained.wait(), timeout_s)
        except asyncio.TimeoutError:
            return False
        return True

    def abort_pending(self) -> None:
        """End every request with UNHEALTHY, at once; a batch under way runs on and is ignored.

        Requests that are still being tokenised end the same way as soon as they come to the queue.
        """
        self._is_aborted = True
        for pending in tuple(self._pending):
            self._worker.drop(pending.items)
            pending.abandon(not_ready("the server is going down"))

    def close(self, timeout_s: float) -> bool:
        """End the engine thread, which closes the engine; False when the timeout came first."""
        self.stop()
        return self.join(timeout_s)

    def stop(self) -> None:
        """Have the engine thread end after the batch under way."""
        self.begin_drain()
        self.abort_pending()
        self._worker.stop()

    def join(self, timeout_s: float) -> bool:
        """Wait for a stopped engine thread, on any thread; False when the timeout came first."""
        return self._worker.join(timeout_s)

    async def _wait(self, pending: PendingRequest, deadline_s: float | None) -> None:
        timer = None
        if deadline_s is not None:
            delay_s = max(deadline_s - time.monotonic(), 0.0)
            timer = asyncio.get_running_loop().call_later(delay_s, self._expire, pending)
        try:
            await pending.future
        except (asyncio.CancelledError, InferenceError):
            self.forget(pending)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self, pending: PendingRequest) -> None:
        if self._drop_queued(pending):
            pending.fail(deadline_passed())

    def _drop_queued(self, pending: PendingRequest) -> int:
        dropped = self._worker.drop(pending.items) if pending.num_unfinished else []
        for item in dropped:
            pending.item_dropped(item)
        return len(dropped)

    def _reports(self) -> WorkerReports:
        return WorkerReports(
            batch_ended=lambda outcome: self._post(lambda: self._receive(outcome)),
            died=lambda: self._post(self.abort_pending),
        )

    def _post(self, callback: Callable[[], None]) -> None:
        """Run a callback on the event loop; called on the engine thread."""
        assert self._loop is not None, "the engine thread ran before start(); this is a bug"
        try:
            self._loop.call_soon_threadsafe(callback)
        except RuntimeError:
            # A closed loop means the server is gone and nobody waits; anything else is our bug.
            if not self._loop.is_closed():
                raise

    def _receive(self, outcome: BatchOutcome) -> None:
        for item in outcome.expired:
            item.receiver.item_expired(item)
        for item, result in zip(outcome.items, outcome.results, strict=True):
            if isinstance(result, ItemFailure):
                item.receiver.item_failed(item, result)
            else:
                queue_s = outcome.started_s - item.order.arrival_s
                item.receiver.item_done(
                    item, result, queue_s=queue_s, inference_s=outcome.inference_s
                )
        # Behind the requests that were just woken: nobody waits for figures. A closure, because
        # asyncio would log the arguments of a callback that fails.
        asyncio.get_running_loop().call_soon(lambda: self._report(outcome))

    def _report(self, outcome: BatchOutcome) -> None:
        if not outcome.items:
            return
        self._observer.batch_formed(
            num_items=len(outcome.items), num_tokens=sum(item.num_tokens for item in outcome.items)
        )
        for call in outcome.calls:
            self._throughput.record(num_tokens=call.num_tokens, engine_s=call.engine_s)
            self._brief.called(num_tokens=call.num_tokens, engine_s=call.engine_s)
            self._observer.batch_finished(
                engine_s=call.engine_s,
                num_tokens=call.num_tokens,
                num_folded_tokens=call.num_folded_tokens,
            )
        if outcome.calls:
            self._last_batch = (len(outcome.items), outcome.num_tokens)
        for item, result in zip(outcome.items, outcome.results, strict=True):
            if not isinstance(result, ItemFailure):
                self._observer.item_finished(num_tokens=item.num_tokens)

    def _note_if_drained(self) -> None:
        if self._is_draining and self._admission.num_requests == 0:
            self._drained.set()


class Slot:
    """Does something when its context ends; gives the monotonic time at which it began."""

    def __init__(self, release: Callable[[], None]) -> None:
        self._release = release

    def __enter__(self) -> float:
        return time.monotonic()

    def __exit__(self, *_: object) -> None:
        self._release()


def _make_worker(
    model: LoadedModel, settings: ServiceSettings, reports: WorkerReports
) -> EngineWorker:
    info = model.info
    limits = BatchLimits(
        fill_tokens=info.fill_tokens,
        max_tokens=info.max_batch_tokens,
        max_items=min(settings.max_batch_requests or info.max_batch_items, info.max_batch_items),
    )
    batcher = Batcher(limits, priority_bonus_s=settings.priority_bonus_s)
    return EngineWorker(
        model.engine,
        batcher,
        reports,
        position_offset=model.position_offset,
        cpus=model.replica_cpus,
        team=None if model.team is None else TeamChoice(model.team),
    )
