"""Admission counts and the wait a refused client is told."""

import pytest

from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.limits import Admission, ThroughputMeter
from infinity_v3.runtime.settings import ServiceSettings


def make_admission(*, max_requests: int = 2, max_queue_tokens: int = 100) -> Admission:
    return Admission(
        max_requests=max_requests,
        max_queue_tokens=max_queue_tokens,
        throughput=ThroughputMeter(),
    )


def test_slots_run_out_and_come_back() -> None:
    admission = make_admission()
    admission.take_slot()
    admission.take_slot()
    with pytest.raises(
        InferenceError, match=r"Model is overloaded.*--max-concurrent-requests"
    ) as e:
        admission.take_slot()
    assert (e.value.kind, e.value.code) == (ErrorKind.OVERLOADED, "overloaded")
    assert e.value.retry_after_s == 1
    admission.release_slot()
    admission.take_slot()


def test_tokens_are_admitted_whole_or_not_at_all() -> None:
    admission = make_admission()
    admission.admit_tokens(60)
    with pytest.raises(InferenceError, match=r"Model is overloaded.*--max-queue-tokens") as e:
        admission.admit_tokens(41)
    assert e.value.kind is ErrorKind.OVERLOADED
    assert admission.num_tokens == 60
    admission.admit_tokens(40)
    admission.release_tokens(100)
    assert admission.num_tokens == 0


def test_a_request_above_the_whole_queue_is_refused_for_good() -> None:
    with pytest.raises(InferenceError, match="--max-queue-tokens") as e:
        make_admission().admit_tokens(101)
    assert (e.value.kind, e.value.code) == (ErrorKind.VALIDATION, "input_too_long")
    assert e.value.retry_after_s is None


@pytest.mark.parametrize(
    ("rate", "waiting", "seconds"), [(1000, 1, 1), (10, 95, 10), (1, 100, 60), (50, 100, 2)]
)
def test_retry_after_is_the_time_to_work_off_the_queue(
    rate: int, waiting: int, seconds: int
) -> None:
    meter = ThroughputMeter()
    meter.record(num_tokens=rate, engine_s=1.0)
    admission = Admission(max_requests=1, max_queue_tokens=100, throughput=meter)
    admission.admit_tokens(waiting)
    assert admission.retry_after_s() == seconds


def test_throughput_follows_recent_batches() -> None:
    meter = ThroughputMeter()
    assert meter.tokens_per_s is None
    for _ in range(20):
        meter.record(num_tokens=100, engine_s=1.0)
    assert meter.tokens_per_s == pytest.approx(100.0)
    for _ in range(60):
        meter.record(num_tokens=300, engine_s=1.0)
    assert meter.tokens_per_s == pytest.approx(300.0, rel=0.01)


def test_giving_back_twice_is_a_bug() -> None:
    with pytest.raises(AssertionError, match="this is a bug"):
        make_admission().release_slot()
    with pytest.raises(AssertionError, match="this is a bug"):
        make_admission().release_tokens(1)


@pytest.mark.parametrize(
    ("wanted", "tokens_per_s", "expected"),
    [
        (None, None, 6400),
        (None, 1e9, 6400),
        (None, 50.0, 500),
        (None, 1.0, 200),
        (7, 1e9, 7),
    ],
)
def test_the_default_queue_can_be_worked_off_in_ten_seconds(
    wanted: int | None, tokens_per_s: float | None, expected: int
) -> None:
    settings = ServiceSettings(max_queue_tokens=wanted)
    assert settings.queue_tokens(100, tokens_per_s) == expected
