"""The batcher against a plain model of its rules, with a manual clock."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from infinity_v3.runtime.batch import EncodedText
from infinity_v3.runtime.batcher import MIN_SHARE_TOKENS, Batcher, BatchLimits
from infinity_v3.runtime.work import Readout, WorkItem, WorkOrder
from receivers import Nobody

READOUT = Readout(output="pooled")
LIMITS = BatchLimits(fill_tokens=16, max_tokens=40, max_items=5)
BONUS_S = 1.0


def make_item(
    num_tokens: int,
    *,
    arrival_s: float = 0.0,
    is_priority: bool = False,
    deadline_s: float | None = None,
) -> WorkItem:
    order = WorkOrder(
        readout=READOUT, arrival_s=arrival_s, is_priority=is_priority, deadline_s=deadline_s
    )
    encoded = EncodedText(input_ids=np.zeros(num_tokens, dtype=np.int64))
    return WorkItem(encoded=encoded, position=0, order=order, receiver=Nobody())


def make_batcher(limits: BatchLimits = LIMITS, *, bonus_s: float = BONUS_S) -> Batcher:
    return Batcher(limits, priority_bonus_s=bonus_s)


def test_takes_everything_up_to_the_fill_budget() -> None:
    batcher = make_batcher()
    items = [make_item(6), make_item(6), make_item(4), make_item(1)]
    batcher.append(items)
    assert batcher.next_batch(0.0).items == tuple(items[:3])
    assert batcher.next_batch(0.0).items == (items[3],)
    assert batcher.next_batch(0.0).is_empty


def test_an_item_above_the_fill_budget_goes_alone() -> None:
    batcher = make_batcher()
    items = [make_item(40), make_item(1), make_item(17), make_item(1)]
    batcher.append(items)
    batches = [batcher.next_batch(0.0).items for _ in range(4)]
    assert batches == [(item,) for item in items]


def test_an_item_that_fits_no_batch_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="fits no batch"):
        make_batcher().append([make_item(41)])


def test_a_short_item_does_not_overtake_a_long_head() -> None:
    batcher = make_batcher()
    items = [make_item(10), make_item(10), make_item(1)]
    batcher.append(items)
    assert batcher.next_batch(0.0).items == (items[0],)
    assert batcher.next_batch(0.0).items == (items[1], items[2])


def test_the_item_limit_holds_for_ragged_items() -> None:
    batcher = make_batcher()
    items = [make_item(1 + index % 2) for index in range(12)]
    batcher.append(items)
    sizes = [len(batcher.next_batch(0.0).items) for _ in range(3)]
    assert sizes == [5, 5, 2]


def test_priority_overtakes_what_arrived_within_the_bonus() -> None:
    batcher = make_batcher()
    old, recent = make_item(16, arrival_s=0.0), make_item(16, arrival_s=1.5)
    urgent = make_item(16, arrival_s=2.0, is_priority=True)
    batcher.append([old, recent, urgent])
    order = [batcher.next_batch(3.0).items[0] for _ in range(3)]
    assert order == [old, urgent, recent]


def test_without_bonus_priority_is_plain_first_in_first_out() -> None:
    batcher = make_batcher(bonus_s=0.0)
    items = [make_item(16, arrival_s=1.0, is_priority=index % 2 == 1) for index in range(6)]
    for item in items:
        batcher.append([item])
    assert [batcher.next_batch(1.0).items[0] for _ in items] == items


def test_a_steady_stream_of_priority_items_starves_nobody() -> None:
    batcher = make_batcher()
    normal = make_item(16, arrival_s=0.0)
    batcher.append([normal])
    now_s = 0.0
    while not normal.is_taken:
        batcher.append([make_item(16, arrival_s=now_s, is_priority=True)])
        batcher.next_batch(now_s)
        now_s += 0.1
    assert now_s <= BONUS_S + 0.2


def test_both_classes_share_a_batch() -> None:
    batcher = make_batcher()
    normal, urgent = make_item(8), make_item(8, is_priority=True)
    batcher.append([normal, urgent])
    assert batcher.next_batch(0.0).items == (urgent, normal)


def test_expired_items_are_reported_and_not_run() -> None:
    batcher = make_batcher()
    late, in_time = make_item(3, deadline_s=5.0), make_item(3, deadline_s=5.1)
    batcher.append([late, in_time])
    batch = batcher.next_batch(5.0)
    assert batch.items == (in_time,)
    assert batch.expired == (late,)
    assert batcher.num_tokens == 0


def test_a_dropped_item_leaves_the_counters_at_once_and_is_never_taken() -> None:
    batcher = make_batcher()
    items = [make_item(3), make_item(4), make_item(5)]
    batcher.append(items)
    assert batcher.drop(items[1])
    assert not batcher.drop(items[1])
    assert (batcher.num_items, batcher.num_tokens) == (2, 8)
    assert batcher.next_batch(0.0).items == (items[0], items[2])
    assert not batcher.drop(items[0])


def test_dropped_items_behind_a_waiting_head_are_not_kept() -> None:
    batcher = make_batcher()
    head = make_item(1)
    batcher.append([head])
    for _ in range(100):
        dropped = [make_item(1) for _ in range(100)]
        batcher.append(dropped)
        for item in dropped:
            batcher.drop(item)
    lane = batcher._normal
    assert len(lane._queue) <= 200
    assert batcher.next_batch(0.0).items == (head,)


def count_calls(work: Callable[[], None]) -> int:
    """Calls into Python and C functions, and resumptions of generators, that `work` makes."""
    num_calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal num_calls
        num_calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return num_calls


def test_work_per_item_does_not_grow_with_the_queue() -> None:
    def calls_per_item(num_items: int) -> float:
        batcher = make_batcher()
        items = [make_item(1, is_priority=index % 3 == 0) for index in range(num_items)]

        def pass_through() -> None:
            batcher.append(items)
            for item in items[::2]:
                batcher.drop(item)
            while not batcher.next_batch(0.0).is_empty:
                pass

        return count_calls(pass_through) / num_items

    small, large = calls_per_item(1_000), calls_per_item(20_000)
    # Work that is linear per operation would make this twenty.
    assert large < 1.5 * small, f"{small:.1f} calls per item grew to {large:.1f}"


@dataclass
class Expected:
    """The model's view of one item."""

    item: WorkItem
    sequence: int

    def rank(self) -> tuple[float, int]:
        bonus_s = BONUS_S if self.item.order.is_priority else 0.0
        return self.item.order.arrival_s - bonus_s, self.sequence


class BatcherMachine(RuleBasedStateMachine):
    """Appends, drops and takes at random; the model sorts lists where the batcher keeps queues."""

    def __init__(self) -> None:
        super().__init__()
        self.batcher = make_batcher()
        self.waiting: list[Expected] = []
        self.taken: dict[int, WorkItem] = {}
        self.appended = 0
        self.now_s = 0.0

    @rule(
        lengths=st.lists(st.integers(1, LIMITS.max_tokens), min_size=1, max_size=8),
        is_priority=st.booleans(),
        time_left_s=st.none() | st.floats(0.0, 3.0),
    )
    def append(self, lengths: list[int], is_priority: bool, time_left_s: float | None) -> None:
        deadline_s = None if time_left_s is None else self.now_s + time_left_s
        items = [
            make_item(length, arrival_s=self.now_s, is_priority=is_priority, deadline_s=deadline_s)
            for length in lengths
        ]
        self.batcher.append(items)
        for item in items:
            self.waiting.append(Expected(item=item, sequence=self.appended))
            self.appended += 1

    @rule(step_s=st.floats(0.0, 0.7))
    def pass_time(self, step_s: float) -> None:
        self.now_s += step_s

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        expected = data.draw(st.sampled_from(self.waiting))
        assert self.batcher.drop(expected.item)
        assert not self.batcher.drop(expected.item)
        self.waiting.remove(expected)

    @rule()
    def take(self) -> None:
        batch = self.batcher.next_batch(self.now_s)
        items, expired = self._expected_batch()
        assert list(batch.items) == items
        assert list(batch.expired) == expired
        assert sum(item.num_tokens for item in batch.items) <= LIMITS.fill_tokens or len(items) == 1
        assert len(items) <= LIMITS.max_items
        for item in items:
            assert id(item) not in self.taken, "an item left twice"
            self.taken[id(item)] = item

    def _expected_batch(self) -> tuple[list[WorkItem], list[WorkItem]]:
        items: list[WorkItem] = []
        expired: list[WorkItem] = []
        budget = LIMITS.fill_tokens
        while self.waiting and len(items) < LIMITS.max_items:
            head = min(self.waiting, key=Expected.rank)
            deadline_s = head.item.order.deadline_s
            if deadline_s is not None and deadline_s <= self.now_s:
                expired.append(head.item)
            elif items and head.item.num_tokens > budget:
                break
            else:
                items.append(head.item)
                budget -= head.item.num_tokens
            self.waiting.remove(head)
        return items, expired

    @invariant()
    def counts_what_waits(self) -> None:
        assert self.batcher.num_items == len(self.waiting)
        assert self.batcher.num_tokens == sum(entry.item.num_tokens for entry in self.waiting)

    def teardown(self) -> None:
        while self.waiting:
            self.take()
        assert self.batcher.next_batch(self.now_s).is_empty


TestBatcherMachine = BatcherMachine.TestCase
TestBatcherMachine.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def test_batches_are_shared_out_among_those_who_wait_for_one() -> None:
    batcher = make_batcher(BatchLimits(fill_tokens=1000, max_tokens=1000, max_items=100))
    items = [make_item(MIN_SHARE_TOKENS // 4) for _ in range(40)]
    batcher.append(items)
    assert batcher.next_batch(0.0, num_takers=2).items == tuple(items[:20])
    assert batcher.next_batch(0.0, num_takers=1).items == tuple(items[20:])


def test_what_is_hardly_anything_is_not_shared_out() -> None:
    batcher = make_batcher(BatchLimits(fill_tokens=1000, max_tokens=1000, max_items=100))
    items = [make_item(MIN_SHARE_TOKENS // 4) for _ in range(5)]
    batcher.append(items)
    assert batcher.next_batch(0.0, num_takers=8).items == tuple(items[:4])
    assert batcher.next_batch(0.0, num_takers=8).items == tuple(items[4:])
