"""The engine threads: take batches from the queue, run them, report every item's end.

While they are idle, the thread that submits may run a batch itself.

Knows nothing of requests, texts or the event loop it reports to.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from infinity_v3.artifacts.manifest import Graph
from infinity_v3.runtime.batch import (
    KEY_COUNTS_INPUT,
    ROWS_INPUT,
    TOKEN_TYPES_INPUT,
    Batch,
    EncodedText,
    pack,
)
from infinity_v3.runtime.batcher import Batcher, NextBatch
from infinity_v3.runtime.engine import Engine, EngineError, EngineOutput
from infinity_v3.runtime.fold import find_fold, pack_folded
from infinity_v3.runtime.postprocess import read_rows
from infinity_v3.runtime.team import TeamChoice
from infinity_v3.runtime.work import ItemFailure, Row, WorkItem

MAX_FAILED_BATCHES = 8
"""Batches in a row without one success, after which the engine counts as down."""

NON_FINITE = ItemFailure(
    code="non_finite_output",
    message="the model's output holds non-finite numbers (NaN or infinity)",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCall:
    """One engine call that gave results.

    Attributes:
        num_tokens: one that several items share counts for each of them.
        num_folded_tokens: the part of them that was computed for another item.
    """

    engine_s: float
    num_tokens: int
    num_folded_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOutcome:
    """How one batch ended.

    Attributes:
        items: in batch order.
        results: a row or a failure for each item.
        expired: items whose deadline passed while they waited; they were not run.
        started_s: when the batch left the queue, on the clock of time.monotonic().
        inference_s: seconds from then until its numbers were ready.
        calls: those that gave results; more than one where a batch had to be split.
    """

    items: tuple[WorkItem, ...]
    results: tuple[Row | ItemFailure, ...]
    expired: tuple[WorkItem, ...]
    started_s: float
    inference_s: float
    calls: tuple[EngineCall, ...]

    @property
    def engine_s(self) -> float:
        """Seconds of all calls."""
        return sum(call.engine_s for call in self.calls)

    @property
    def num_tokens(self) -> int:
        """Tokens of all calls."""
        return sum(call.num_tokens for call in self.calls)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReports:
    """Called on an engine thread; must not block.

    Attributes:
        batch_ended: once per batch.
        died: a thread ends although nobody stopped it; its batch is not reported.
    """

    batch_ended: Callable[[BatchOutcome], None]
    died: Callable[[], None]


class EngineWorker:
    """Runs one engine, on one thread per replica. Items come and are dropped on any other thread.

    The engine is closed by the last thread as its last act, so no call can be under way then.

    Args:
        cpus: of each replica; an empty set = any.
        team: chooses the threads of each call, of a single replica only; None = as the engine was
            loaded.
    """

    def __init__(
        self,
        engine: Engine,
        batcher: Batcher,
        reports: WorkerReports,
        *,
        position_offset: int,
        cpus: Sequence[frozenset[int]] = (frozenset(),),
        team: TeamChoice | None = None,
    ) -> None:
        self._engine = engine
        self._batcher = batcher
        self._reports = reports
        self._position_offset = position_offset
        self._team = team
        self._submitter_clock = time.CLOCK_THREAD_CPUTIME_ID  # that thread's own, from the start on
        self._can_fold = _can_fold(engine.graph)
        self._wakeup = threading.Condition(threading.Lock())
        self._is_stopping = False
        self._is_dead = False
        self._num_failed_batches = 0
        self._num_idle = 0
        self._num_running = len(cpus)
        self._is_pinned = any(cpus)
        # Teams of threads that wait for the calls of one thread: where there are several, each
        # call takes longer. Engine threads that keep one, and whether they are to release it.
        self._num_keeping = 0
        self._is_releasing = False
        self._submitter_keeps = False
        self._threads = [
            threading.Thread(target=self._run, args=(own,), name="infinity-engine", daemon=True)
            for own in cpus
        ]

    @property
    def is_down(self) -> bool:
        """A thread died, or too many batches failed in a row, which a later success clears."""
        return self._is_dead or self._num_failed_batches >= MAX_FAILED_BATCHES

    @property
    def num_queued_items(self) -> int:
        return self._batcher.num_items

    def start(self) -> None:
        """Called on the thread that will submit."""
        self._submitter_clock = time.pthread_getcpuclockid(threading.get_ident())
        for thread in self._threads:
            thread.start()

    def submit(self, items: Sequence[WorkItem]) -> None:
        """Queue items and wake a thread that is idle."""
        self._release_submitter()
        with self._wakeup:
            self._batcher.append(items)
            self._wakeup.notify()

    def compute_now(self, items: Sequence[WorkItem]) -> BatchOutcome | None:
        """Run a batch on the calling thread, which is the one that submits.

        Returns:
            None unless every engine thread is idle, so that nothing waits and no call is under way,
            and has released what waits for its calls. The next one will.
        """
        with self._wakeup:
            is_idle = 0 < self._num_running == self._num_idle and not self._batcher.num_items
            if not is_idle or self._is_stopping or self._is_pinned:
                return None
            if self._num_keeping:
                self._is_releasing = True
                return None
        for item in items:
            item.is_taken = True
        self._submitter_keeps = True
        try:
            return self._compute(NextBatch(items=tuple(items), expired=()), team=None)
        except BaseException:
            # As on an engine thread: nobody knows the state of the engine.
            self._is_dead = True
            raise

    def _release_submitter(self) -> None:
        if self._submitter_keeps:
            self._engine.release_threads()
            self._submitter_keeps = False

    def drop(self, items: Sequence[WorkItem]) -> list[WorkItem]:
        """Take items out of the queue; those that were still in it come back and end unreported."""
        with self._wakeup:
            return [item for item in items if self._batcher.drop(item)]

    def stop(self) -> None:
        """Let the threads end after the batches under way; the queue must have been emptied.

        Called on the thread that submits.
        """
        self._release_submitter()
        with self._wakeup:
            self._is_stopping = True
            self._wakeup.notify_all()

    def join(self, timeout_s: float) -> bool:
        """Wait for stopped threads; False when one is still inside an engine call."""
        deadline_s = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _run(self, cpus: frozenset[int]) -> None:
        try:
            if cpus:
                # Of this thread alone, and of the team that it will start.
                os.sched_setaffinity(0, cpus)
            self._serve()
        finally:
            if not self._is_stopping:
                # An exception is on its way to threading.excepthook; nobody may wait on.
                self._is_dead = True
                self._reports.died()
            with self._wakeup:
                self._num_running -= 1
                is_last = self._num_running == 0
            if is_last:
                self._engine.close()

    def _serve(self) -> None:
        keeps = False
        while (batch := self._wait_for_batch()) is not None:
            if not keeps:
                keeps = self._note_keeping(1)
            outcome = self._compute(batch, team=self._team)
            self._reports.batch_ended(outcome)
            # Else an idle thread would keep the last batch's arrays alive.
            del batch, outcome
            if self._is_releasing:
                self._engine.release_threads()
                keeps = self._note_keeping(-1)

    def _note_keeping(self, change: int) -> bool:
        with self._wakeup:
            self._num_keeping += change
            self._is_releasing = self._is_releasing and self._num_keeping > 0
        return change > 0

    def _wait_for_batch(self) -> NextBatch | None:
        with self._wakeup:
            while not self._is_stopping:
                batch = self._batcher.next_batch(time.monotonic(), num_takers=self._num_idle + 1)
                if not batch.is_empty:
                    if self._num_idle and self._batcher.num_items:
                        self._wakeup.notify()
                    return batch
                self._num_idle += 1
                self._wakeup.wait()
                self._num_idle -= 1
        return None

    def _compute(self, batch: NextBatch, *, team: TeamChoice | None) -> BatchOutcome:
        started_s = time.monotonic()
        run = _BatchRun(team)
        if batch.items:
            self._run_or_split(batch.items, run)
            with self._wakeup:
                self._num_failed_batches = 0 if run.calls else self._num_failed_batches + 1
        return BatchOutcome(
            items=batch.items,
            results=tuple(run.results),
            expired=batch.expired,
            started_s=started_s,
            inference_s=time.monotonic() - started_s,
            calls=tuple(run.calls),
        )

    def _run_or_split(self, items: tuple[WorkItem, ...], run: "_BatchRun") -> None:
        """Run a batch; if the engine fails, run its halves once each, or a lone item once more."""
        if self._run_part(items, run) is None:
            return
        middle = (len(items) + 1) // 2
        for half in (items[:middle], items[middle:]):
            if half and (failure := self._run_part(half, run)) is not None:
                run.results.extend([failure] * len(half))

    def _run_part(self, items: tuple[WorkItem, ...], run: "_BatchRun") -> ItemFailure | None:
        order, batch = self._pack([item.encoded for item in items])
        readouts = [item.order.readout for item in items]
        if order is not None:
            readouts = [readouts[place] for place in order]
        outputs = frozenset(readout.output for readout in readouts)
        started_s = time.monotonic()
        try:
            output = self._call(batch, outputs, run.team)
        except (EngineError, MemoryError) as error:
            return ItemFailure(code="engine_error", message=f"inference failed: {error}")
        engine_s = time.monotonic() - started_s
        rows = read_rows(output.tensors, batch, readouts)
        if order is not None:
            rows = [row for _, row in sorted(zip(order, rows, strict=True), key=itemgetter(0))]
        run.results.extend(NON_FINITE if row is None else row for row in rows)
        run.calls.append(
            EngineCall(
                engine_s=engine_s,
                num_tokens=batch.num_tokens,
                num_folded_tokens=batch.num_tokens - batch.num_stored_tokens,
            )
        )
        return None

    def _call(self, batch: Batch, outputs: frozenset[str], team: TeamChoice | None) -> EngineOutput:
        if team is None:
            return self._engine.run(batch, outputs)
        num_tokens = batch.num_stored_tokens
        num_threads = team.choose(num_tokens)
        started_s, busy_s = time.monotonic(), time.clock_gettime(self._submitter_clock)
        output = self._engine.run(batch, outputs, num_threads=num_threads)
        team.note(
            num_threads,
            num_tokens,
            call_s=time.monotonic() - started_s,
            busy_s=time.clock_gettime(self._submitter_clock) - busy_s,
        )
        return output

    def _pack(self, texts: Sequence[EncodedText]) -> tuple[Sequence[int] | None, Batch]:
        """Make a batch of the texts, and say which text each sequence is; None = their order."""
        fold = find_fold([text.input_ids for text in texts]) if self._can_fold else None
        if fold is None:
            return None, pack(texts, position_offset=self._position_offset)
        batch = pack_folded(texts, fold, position_offset=self._position_offset)
        return fold.order.tolist(), batch


def _can_fold(graph: Graph) -> bool:
    """Tokens may be stored once, and identical ids are all it takes for identical states."""
    names = {spec.name for spec in graph.inputs}
    return ROWS_INPUT in names and not names & {TOKEN_TYPES_INPUT, KEY_COUNTS_INPUT}


class _BatchRun:
    """What the engine calls of one batch have given so far; `team` is for those to come."""

    def __init__(self, team: TeamChoice | None) -> None:
        self.team = team
        self.results: list[Row | ItemFailure] = []
        self.calls: list[EngineCall] = []
