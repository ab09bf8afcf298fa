"""What tuning decides: the fewest threads, the smallest batch and the shortest wait that do."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.artifacts.profile import TargetProfile
from infinity_v3.compiler.tuning import (
    NEAR_BEST,
    STEADY_P50,
    STEADY_RATE,
    EngineSpeed,
    ReplicaSpeed,
    ServedSpeed,
    choose_engine,
    choose_fill_tokens,
    choose_replicas,
    choose_served,
    profile_of,
)

SIZES = (64, 512, 4096)
rates = st.floats(10.0, 1e6)
engines = st.lists(st.tuples(rates, rates, rates), min_size=1, max_size=5).map(
    lambda found: [speed_of(place + 1, *row) for place, row in enumerate(found)]
)
servers = st.lists(st.tuples(rates, rates, rates), min_size=1, max_size=6).map(
    lambda found: [served(place + 1, *row) for place, row in enumerate(found)]
)


def speed_of(num_threads: int, *tokens_per_s: float) -> EngineSpeed:
    seconds = {size: size / rate for size, rate in zip(SIZES, tokens_per_s, strict=True)}
    return EngineSpeed(num_threads=num_threads, seconds=seconds)


def served(spin_count: int, p50_s: float, p99_s: float, requests_per_s: float) -> ServedSpeed:
    return ServedSpeed(
        spin_count=spin_count,
        p50_s=p50_s,
        p99_s=p99_s,
        requests_per_s=requests_per_s,
        startup_s=0.5,
    )


def test_more_threads_have_to_pay() -> None:
    one = speed_of(1, 1000, 1000, 1000)
    assert choose_engine([one, speed_of(2, 1020, 1020, 1020)]) is one
    two = speed_of(2, 1500, 1900, 1900)
    assert choose_engine([one, two, speed_of(4, 900, 1900, 2300)]) is two


def shared(num_replicas: int, p50_ms: float, requests_per_s: float) -> ReplicaSpeed:
    return ReplicaSpeed(
        num_replicas=num_replicas,
        num_threads=16 // num_replicas,
        p50_s=p50_ms / 1e3,
        requests_per_s=requests_per_s,
    )


def test_replicas_have_to_gain_more_than_lone_replies_lose() -> None:
    one = shared(1, 2.0, 1000)
    assert choose_replicas([one, shared(2, 3.0, 1500)]) is one
    four = shared(4, 3.0, 4000)
    assert choose_replicas([one, shared(2, 2.5, 1800), four, shared(8, 9.0, 4800)]) is four


@given(st.lists(st.tuples(rates, rates), min_size=1, max_size=5))
def test_no_replicas_are_better_at_both(found: list[tuple[float, float]]) -> None:
    speeds = [shared(2**place, *row) for place, row in enumerate(found)]
    chosen = choose_replicas(speeds)
    better = [
        speed
        for speed in speeds
        if speed.p50_s < NEAR_BEST * chosen.p50_s
        and speed.requests_per_s * NEAR_BEST > chosen.requests_per_s
    ]
    assert not better


def test_a_batch_is_as_large_as_it_has_to_be() -> None:
    speed = speed_of(2, 5000, 9800, 10000)
    assert choose_fill_tokens(speed, 1.0) == 512
    assert choose_fill_tokens(speed_of(2, 5000, 9000, 10000), 1.0) == 4096


def test_no_batch_takes_longer_than_the_bound() -> None:
    speed = speed_of(2, 5000, 9000, 10000)
    assert speed.seconds[4096] == pytest.approx(0.4096)
    assert choose_fill_tokens(speed, 0.4) == 512
    assert choose_fill_tokens(speed, 1e-9) == 64


def test_the_steadiest_of_the_fast_servers() -> None:
    quick, steady = served(300_000, 0.0030, 0.020, 800), served(10_000, 0.0032, 0.005, 740)
    assert choose_served([quick, steady]) is steady
    slow = served(0, 0.0040, 0.004, 800)
    assert choose_served([quick, steady, slow]) is steady
    weak = served(1, 0.0030, 0.001, 500)
    assert choose_served([quick, steady, weak]) is steady


@given(engines, st.floats(1e-4, 1e3))
def test_every_choice_is_among_what_was_measured(speeds: list[EngineSpeed], bound_s: float) -> None:
    engine = choose_engine(speeds)
    assert engine in speeds
    size = choose_fill_tokens(engine, bound_s)
    within = [rate for key, rate in engine.tokens_per_s.items() if engine.seconds[key] <= bound_s]
    if within:
        assert engine.seconds[size] <= bound_s
        assert engine.tokens_per_s[size] >= NEAR_BEST * max(within)
    else:
        assert size == min(SIZES)


@given(servers)
def test_a_chosen_server_is_near_the_best_rate(speeds: list[ServedSpeed]) -> None:
    chosen = choose_served(speeds)
    best = max(speed.requests_per_s for speed in speeds)
    assert chosen.requests_per_s >= STEADY_RATE * best
    dominated = [
        speed
        for speed in speeds
        if speed.requests_per_s >= STEADY_RATE * best
        and speed.p50_s * STEADY_P50 < chosen.p50_s
        and speed.p99_s < chosen.p99_s
    ]
    assert not dominated


def test_the_answers_together() -> None:
    engine, server = speed_of(2, 5000, 9990, 10000), served(7, 0.003, 0.005, 800)
    alone = TargetProfile(
        fill_tokens=512, num_threads=2, spin_count=7, tokens_per_s=9990.0, startup_s=0.5
    )
    assert profile_of(engine, server, num_replicas=1, latency_bound_s=1.0) == alone
    three = replace(alone, num_replicas=3, tokens_per_s=29970.0)
    assert profile_of(engine, server, num_replicas=3, latency_bound_s=1.0) == three
