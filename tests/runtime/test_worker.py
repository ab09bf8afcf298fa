"""The engine thread: retries, failures, death, and that every item ends once."""

import os
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from fake_engine import FakeEngine, hidden, pooled
from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.batcher import Batcher, BatchLimits
from infinity_v3.runtime.team import TeamChoice, TeamSizes
from infinity_v3.runtime.work import ItemFailure, Readout, RowForm, WorkItem, WorkOrder
from infinity_v3.runtime.worker import (
    MAX_FAILED_BATCHES,
    BatchOutcome,
    EngineWorker,
    WorkerReports,
)
from receivers import Nobody

DEADLINE_S = 10.0
BAD = 99


class Bench:
    """One worker on a fake engine, with its reports in queues."""

    def __init__(
        self,
        *inputs: str,
        num_replicas: int = 1,
        cpus: Sequence[frozenset[int]] | None = None,
        team: TeamChoice | None = None,
    ) -> None:
        self.engine = FakeEngine(inputs=("input_ids", *inputs))
        self.engine.max_running = num_replicas
        self.outcomes: queue.Queue[BatchOutcome] = queue.Queue()
        self.deaths: queue.Queue[str] = queue.Queue()
        limits = BatchLimits(fill_tokens=64, max_tokens=64, max_items=64)
        reports = WorkerReports(batch_ended=self.outcomes.put, died=lambda: self.deaths.put("died"))
        self.worker = EngineWorker(
            self.engine,
            Batcher(limits, priority_bonus_s=1.0),
            reports,
            position_offset=0,
            cpus=cpus or (frozenset(),) * num_replicas,
            team=team,
        )

    def outcome(self) -> BatchOutcome:
        return self.outcomes.get(timeout=DEADLINE_S)

    def run(self, *token_ids: int) -> BatchOutcome:
        self.worker.submit(make_items(*token_ids))
        return self.outcome()


@contextmanager
def running(bench: Bench) -> Iterator[Bench]:
    bench.worker.start()
    yield bench
    bench.engine.gate.set()
    bench.worker.stop()
    assert bench.worker.join(DEADLINE_S)


@pytest.fixture
def bench() -> Iterator[Bench]:
    with running(Bench()) as bench:
        yield bench


def make_items(*token_ids: int) -> list[WorkItem]:
    return make_texts(*([token_id, 1] for token_id in token_ids))


def make_texts(*texts: Sequence[int]) -> list[WorkItem]:
    order = WorkOrder(readout=Readout(output="pooled"), arrival_s=0.0)
    return [
        WorkItem(
            encoded=EncodedText(input_ids=np.array(ids, dtype=np.int64)),
            position=position,
            order=order,
            receiver=Nobody(),
        )
        for position, ids in enumerate(texts)
    ]


def failures(outcome: BatchOutcome) -> list[str | None]:
    return [result.code if isinstance(result, ItemFailure) else None for result in outcome.results]


def test_a_batch_comes_back_in_order_in_one_report(bench: Bench) -> None:
    outcome = bench.run(3, 4, 5)
    for item, result, token_id in zip(outcome.items, outcome.results, (3, 4, 5), strict=True):
        assert item.encoded.input_ids[0] == token_id
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, pooled([token_id, 1]))
    assert outcome.num_tokens == 6
    assert bench.outcomes.empty()
    assert len(bench.engine.batches) == 1


def test_everything_waiting_joins_the_next_batch(bench: Bench) -> None:
    bench.engine.gate.clear()
    bench.worker.submit(make_items(3))
    assert bench.engine.entered.wait(DEADLINE_S)
    for token_id in (4, 5, 6):
        bench.worker.submit(make_items(token_id))
    bench.engine.gate.set()
    assert len(bench.outcome().items) == 1
    assert len(bench.outcome().items) == 3


def test_a_failed_batch_is_halved_once_and_only_the_bad_half_fails(bench: Bench) -> None:
    bench.engine.failing_ids = {BAD}
    outcome = bench.run(3, 4, 5, BAD)
    assert failures(outcome) == [None, None, "engine_error", "engine_error"]
    sizes = [len(batch) for batch in bench.engine.batches]
    assert sizes == [4, 2, 2]
    assert failures(bench.run(3)) == [None]


def test_a_lone_failing_item_is_tried_twice(bench: Bench) -> None:
    bench.engine.failing_ids = {BAD}
    outcome = bench.run(BAD)
    assert failures(outcome) == ["engine_error"]
    assert len(bench.engine.batches) == 2
    (result,) = outcome.results
    assert isinstance(result, ItemFailure)
    assert "out of memory" in result.message


def test_a_passing_failure_is_not_seen_by_anyone(bench: Bench) -> None:
    attempts = iter([True, False, False])

    def fail_first() -> None:
        if next(attempts):
            raise MemoryError("no memory")

    bench.engine.poison = fail_first
    assert failures(bench.run(3, 4)) == [None, None]


def test_non_finite_output_fails_only_its_item(bench: Bench) -> None:
    bench.engine.non_finite_ids = {BAD}
    outcome = bench.run(3, BAD, 5)
    assert failures(outcome) == [None, "non_finite_output", None]
    assert len(bench.engine.batches) == 1


def test_the_engine_is_down_after_eight_failed_batches_and_up_after_a_success(
    bench: Bench,
) -> None:
    bench.engine.failing_ids = {BAD}
    for _ in range(MAX_FAILED_BATCHES - 1):
        bench.run(BAD)
    states = [bench.worker.is_down]
    for token_id in (BAD, 3):
        bench.run(token_id)
        states.append(bench.worker.is_down)
    assert states == [False, True, False]


def test_one_good_half_counts_as_success(bench: Bench) -> None:
    bench.engine.failing_ids = {BAD}
    for _ in range(MAX_FAILED_BATCHES + 1):
        bench.run(3, BAD)
    assert not bench.worker.is_down


def test_dropped_items_are_not_run(bench: Bench) -> None:
    bench.engine.gate.clear()
    bench.worker.submit(make_items(3))
    assert bench.engine.entered.wait(DEADLINE_S)
    gone, stays = make_items(4, 5)
    bench.worker.submit([gone, stays])
    assert bench.worker.drop([gone]) == [gone]
    assert bench.worker.num_queued_items == 1
    bench.engine.gate.set()
    bench.outcome()
    assert bench.outcome().items == (stays,)
    assert bench.worker.drop([stays]) == []


def test_expired_items_are_reported_without_a_batch(bench: Bench) -> None:
    (item,) = make_items(3)
    item.order = replace(item.order, deadline_s=0.0)
    bench.worker.submit([item])
    outcome = bench.outcome()
    assert outcome.expired == (item,)
    assert outcome.items == ()
    assert bench.engine.batches == []


def test_stop_closes_the_engine_after_the_batch_under_way(bench: Bench) -> None:
    bench.engine.gate.clear()
    bench.worker.submit(make_items(3))
    assert bench.engine.entered.wait(DEADLINE_S)
    bench.worker.stop()
    before = (bench.worker.join(0.05), bench.engine.is_closed)
    bench.engine.gate.set()
    assert failures(bench.outcome()) == [None]
    after = (bench.worker.join(DEADLINE_S), bench.engine.is_closed)
    assert (before, after) == ((False, False), (True, True))
    assert bench.deaths.empty()


def test_a_dying_thread_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    bench = Bench()

    def break_down() -> None:
        raise KeyError("a bug")

    bench.engine.poison = break_down
    bench.worker.start()
    bench.worker.submit(make_items(3))
    assert bench.deaths.get(timeout=DEADLINE_S) == "died"
    assert bench.worker.join(DEADLINE_S)
    assert bench.worker.is_down
    assert bench.engine.is_closed
    assert seen == [KeyError]


def test_mixed_readouts_ask_for_the_union_of_outputs(bench: Bench) -> None:
    bench.engine.gate.clear()
    bench.worker.submit(make_items(3))
    assert bench.engine.entered.wait(DEADLINE_S)
    vector, matrix = make_items(4, 5)
    matrix.order = replace(matrix.order, readout=Readout(output="hidden", form=RowForm.TOKENS))
    bench.worker.submit([vector, matrix])
    bench.engine.gate.set()
    bench.outcome()
    shapes = [result.shape for result in bench.outcome().results if isinstance(result, np.ndarray)]
    assert shapes == [(8,), (2, 8)]
    assert bench.engine.outputs == [frozenset({"pooled"}), frozenset({"pooled", "hidden"})]


SHARING = ([5, 6, 7, 9, 2], [8, 3], [5, 6, 7, 4], [5, 6, 7, 9, 1], [3], [5, 6, 7, 4])
NUM_TOKENS = 21
NUM_STORED = 11


def run_sharing(bench: Bench, *texts: Sequence[int]) -> BatchOutcome:
    """All texts in one batch, vectors and matrices in turn."""
    items = make_texts(*texts)
    for item in items[::2]:
        item.order = replace(item.order, readout=Readout(output="hidden", form=RowForm.TOKENS))
    bench.worker.submit(items)
    outcome = bench.outcome()
    assert outcome.items == tuple(items)
    return outcome


def folds(outcome: BatchOutcome) -> list[tuple[int, int]]:
    """Tokens of each engine call, and how many of them were folded."""
    return [(call.num_tokens, call.num_folded_tokens) for call in outcome.calls]


def assert_own_rows(outcome: BatchOutcome) -> None:
    for number, (item, result) in enumerate(zip(outcome.items, outcome.results, strict=True)):
        ids = item.encoded.input_ids.tolist()
        if not isinstance(result, ItemFailure):
            np.testing.assert_array_equal(result, pooled(ids) if number % 2 else hidden(ids))


def test_shared_prefixes_are_computed_once_and_everyone_gets_its_own() -> None:
    with running(Bench("rows")) as bench:
        outcome = run_sharing(bench, *SHARING)
        assert failures(outcome) == [None] * len(SHARING)
        assert_own_rows(outcome)
        assert bench.engine.num_stored == [NUM_STORED]
        assert outcome.num_tokens == NUM_TOKENS
        assert folds(outcome) == [(NUM_TOKENS, NUM_TOKENS - NUM_STORED)]


def test_failures_of_a_folded_batch_meet_the_right_items() -> None:
    with running(Bench("rows")) as bench:
        bench.engine.non_finite_ids = {9}
        outcome = run_sharing(bench, *SHARING)
        spoilt, fine = "non_finite_output", None
        assert failures(outcome) == [spoilt, fine, fine, spoilt, fine, fine]
        assert_own_rows(outcome)


def test_halves_of_a_folded_batch_are_folded_anew() -> None:
    with running(Bench("rows")) as bench:
        bench.engine.failing_ids = {1}
        outcome = run_sharing(bench, *SHARING, [5, 6, 8, 8], [9])
        assert failures(outcome) == [*["engine_error"] * 4, *[None] * 4]
        assert folds(outcome) == [(10, 2)]
        assert_own_rows(outcome)


@pytest.mark.parametrize("inputs", [(), ("rows", "token_type_ids"), ("rows", "key_counts")])
def test_models_whose_states_hang_on_more_than_ids_do_not_fold(inputs: tuple[str, ...]) -> None:
    with running(Bench(*inputs)) as bench:
        outcome = run_sharing(bench, *SHARING)
        assert_own_rows(outcome)
        assert folds(outcome) == [(NUM_TOKENS, 0)]


def test_a_batch_that_shares_too_little_keeps_its_order() -> None:
    texts = ([9] * 20, [5, 6, 7], [5, 8, 1])
    with running(Bench("rows")) as bench:
        outcome = run_sharing(bench, *texts)
        assert bench.engine.batches == [tuple(map(tuple, texts))]
        assert folds(outcome) == [(26, 0)]


def start_batches(bench: Bench, *token_ids: int) -> None:
    """One batch after another, each while the engine still holds those before it."""
    bench.engine.gate.clear()
    for token_id in token_ids:
        bench.engine.entered.clear()
        bench.worker.submit(make_items(token_id))
        assert bench.engine.entered.wait(DEADLINE_S)


def test_as_many_batches_run_at_once_as_there_are_replicas() -> None:
    with running(Bench(num_replicas=3)) as bench:
        start_batches(bench, 1, 2, 3)
        bench.worker.submit(make_items(4))
        assert bench.worker.num_queued_items == 1
        bench.engine.gate.set()
        outcomes = [bench.outcome() for _ in range(4)]
        assert [failures(outcome) for outcome in outcomes] == [[None]] * 4
    assert bench.engine.is_closed


def test_a_replica_that_dies_is_told_and_the_last_one_closes_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[type[BaseException]] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: seen.append(args.exc_type))
    bench = Bench(num_replicas=2)

    def break_down() -> None:
        raise KeyError("a bug")

    bench.engine.poison = break_down
    bench.worker.start()
    bench.worker.submit(make_items(1))
    assert bench.deaths.get(timeout=DEADLINE_S) == "died"
    states = [bench.engine.is_closed]
    bench.worker.stop()
    assert bench.worker.join(DEADLINE_S)
    states.append(bench.engine.is_closed)
    assert states == [False, True]
    assert bench.worker.is_down
    assert seen == [KeyError]


def compute_for(seconds: float) -> None:
    """Use that much CPU time of the calling thread."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        pass


def test_a_team_is_smaller_while_the_submitting_thread_computes() -> None:
    sizes = TeamSizes(whole=4, spared=3)
    with running(Bench(team=TeamChoice(sizes))) as bench:
        computed_now(bench, 5)
        bench.run(1)
        bench.run(2)
        assert bench.engine.team_sizes == [None, 4, 4], "nothing ran beside the calls"
        for _ in range(2):
            start_batches(bench, 3)
            compute_for(0.02)
            bench.engine.gate.set()
            bench.outcome()
        assert bench.engine.team_sizes[3:] == [4, 3]


def test_replicas_stay_on_their_cpus() -> None:
    available = os.sched_getaffinity(0)
    own = [frozenset({min(available)}), frozenset({max(available)})]
    found: queue.Queue[frozenset[int]] = queue.Queue()
    bench = Bench(num_replicas=2, cpus=own)
    bench.engine.poison = lambda: found.put(frozenset(os.sched_getaffinity(0)))
    with running(bench):
        start_batches(bench, 1, 2)
        bench.engine.gate.set()
        assert {found.get(timeout=DEADLINE_S) for _ in range(2)} == set(own)
    assert os.sched_getaffinity(0) == available


def computed_now(bench: Bench, *token_ids: int) -> BatchOutcome:
    """What the submitting thread computes as soon as it may."""
    deadline_s = time.monotonic() + DEADLINE_S
    while (outcome := bench.worker.compute_now(make_items(*token_ids))) is None:
        assert time.monotonic() < deadline_s
    return outcome


def assert_vectors(outcome: BatchOutcome, token_ids: Sequence[int]) -> None:
    for result, token_id in zip(outcome.results, token_ids, strict=True):
        assert isinstance(result, np.ndarray)
        np.testing.assert_array_equal(result, pooled([token_id, 1]))


def test_the_submitting_thread_computes_while_engine_threads_are_idle(bench: Bench) -> None:
    threads: list[int] = []
    bench.engine.poison = lambda: threads.append(threading.get_ident())
    assert_vectors(computed_now(bench, 7, 8), [7, 8])
    assert failures(bench.run(3)) == [None]
    assert (threads[0], threads[1] == threads[0]) == (threading.get_ident(), False)
    assert bench.outcomes.empty()


def test_only_one_thread_keeps_others_waiting_for_its_calls(bench: Bench) -> None:
    own = threading.get_ident()
    assert_vectors(computed_now(bench, 3), [3])
    assert bench.engine.owners == {own}
    bench.run(4)
    (kept,) = bench.engine.owners
    assert kept != own
    # What waits for the engine thread is released after its next batch, now that it is asked for.
    time.sleep(0.05)
    assert bench.worker.compute_now(make_items(5)) is None
    bench.run(6)
    assert_vectors(computed_now(bench, 7), [7])
    assert bench.engine.owners == {own}


def test_nothing_is_computed_beside_another_call(bench: Bench) -> None:
    start_batches(bench, 3)
    assert bench.worker.compute_now(make_items(4)) is None
    bench.engine.gate.set()
    bench.outcome()


def test_nothing_is_computed_before_the_start_after_the_end_or_off_the_replicas_cpus() -> None:
    bench = Bench()
    found = [bench.worker.compute_now(make_items(4))]
    with running(bench):
        computed_now(bench, 7)
    found.append(bench.worker.compute_now(make_items(4)))
    with running(Bench(cpus=[frozenset(os.sched_getaffinity(0))])) as pinned:
        pinned.run(3)
        time.sleep(0.05)
        found.append(pinned.worker.compute_now(make_items(4)))
    assert found == [None, None, None]


def test_a_bug_on_the_submitting_thread_takes_the_engine_down(bench: Bench) -> None:
    computed_now(bench, 7)

    def break_down() -> None:
        raise KeyError("a bug")

    bench.engine.poison = break_down
    with pytest.raises(KeyError, match="a bug"):
        bench.worker.compute_now(make_items(4))
    assert bench.worker.is_down
