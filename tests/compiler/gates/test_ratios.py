"""The verdict on a ratio: against tables, and in simulated runs of which the truth is known."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from infinity_v3.compiler.gates.ratios import (
    Bound,
    Finding,
    RatioInterval,
    ratio_interval,
    t_quantile,
)
from infinity_v3.compiler.gates.rounds import Comparison, Measure, Pair, RoundLimits, compare_rounds
from infinity_v3.compiler.gates.side_by_side import Turn, figure_of
from infinity_v3.compiler.gates.work import BATCH, SINGLE

# 97.5 % quantiles of Student's distribution, from printed tables.
TABLE = {
    **{1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 7: 2.365, 9: 2.262, 10: 2.228},
    **{14: 2.145, 19: 2.093, 29: 2.045, 39: 2.023, 60: 2.000, 120: 1.980},
}
SLOWER = Bound(value=1.1, is_upper=True)
GATE = "a gate"
RUNS = 400


class Silent:
    def __init__(self) -> None:
        self.done = 0

    def advance(self, amount: int = 1) -> None:
        self.done += amount


@pytest.mark.parametrize(("degrees", "quantile"), TABLE.items())
def test_quantiles_are_those_of_the_tables(degrees: int, quantile: float) -> None:
    assert t_quantile(degrees) == pytest.approx(quantile, abs=1e-3)


def test_an_interval_by_hand() -> None:
    # Logarithms log 2 and 0: mean log(2)/2, standard error log(2)/2, one degree of freedom.
    found = ratio_interval([(1.0, 2.0), (3.0, 3.0)])
    half = 12.706205 * np.log(2) / 2
    assert found.ratio == pytest.approx(2**0.5, rel=1e-12)
    assert found.low == pytest.approx(2**0.5 * np.exp(-half), rel=1e-6)
    assert found.high == pytest.approx(2**0.5 * np.exp(half), rel=1e-6)
    assert found.num_rounds == 2


def test_an_interval_holds_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(7)
    hits = sum(
        interval.low <= 1.2 <= interval.high
        for interval in (ratio_interval(_pairs(generator, 1.2, 10)) for _ in range(2000))
    )
    assert 0.93 <= hits / 2000 <= 0.97


@pytest.mark.parametrize(
    ("low", "high", "upper", "lower"),
    [
        (1.0, 1.1, Finding.HOLDS, Finding.UNDECIDED),
        (1.05, 1.2, Finding.UNDECIDED, Finding.UNDECIDED),
        (1.11, 1.2, Finding.BROKEN, Finding.HOLDS),
        (0.9, 1.0, Finding.HOLDS, Finding.BROKEN),
    ],
)
def test_a_bound_is_decided_by_the_whole_interval(
    low: float, high: float, upper: Finding, lower: Finding
) -> None:
    interval = RatioInterval(ratio=(low + high) / 2, low=low, high=high, num_rounds=9)
    assert Bound(value=1.1, is_upper=True).judge(interval) is upper
    assert Bound(value=1.1, is_upper=False).judge(interval) is lower


def test_equal_artifacts_pass_in_spite_of_noise() -> None:
    assert _share_passed(1.0, SLOWER) >= 0.99
    assert _share_passed(1.0, Bound(value=0.9, is_upper=False)) >= 0.99
    # As tight as noise of this size allows.
    assert _share_passed(1.0, Bound(value=1.05, is_upper=True)) >= 0.95


def test_a_true_slow_down_fails() -> None:
    assert _share_passed(1.2, SLOWER) <= 0.01
    assert _share_passed(0.8, Bound(value=0.9, is_upper=False)) <= 0.02


def test_what_disturbs_both_sides_alike_does_not_count() -> None:
    """The host is up to four times slower in some rounds: pairs see nothing of it."""
    generator = np.random.default_rng(11)
    slowness = generator.uniform(1.0, 4.0, 100)

    def measure(_: str, number: int) -> Pair:
        noise = np.exp(generator.normal(0.0, 0.02, 2))
        return slowness[number] * noise[0], slowness[number] * 1.2 * noise[1]

    found = _compare(measure, SLOWER)
    assert not found.passed
    assert found.interval.num_rounds == RoundLimits().least


def test_a_clear_case_is_decided_at_the_first_look_and_measured_no_longer() -> None:
    asked: list[tuple[str, int]] = []

    def measure(gate: str, number: int) -> Pair:
        asked.append((gate, number))
        # The second gate stays undecided: its ratio swings around the bound.
        return (1.0, 1.0) if gate == "clear" else (1.0, 1.1 + (-1) ** number * 0.05)

    stage = Silent()
    found = compare_rounds({"clear": SLOWER, "open": SLOWER}, measure, stage)
    assert [number for gate, number in asked if gate == "clear"] == list(range(10))
    assert [number for gate, number in asked if gate == "open"] == list(range(100))
    assert stage.done == 100
    assert found["clear"].passed
    assert not found["clear"].is_undecided
    assert found["open"].is_undecided


@pytest.mark.parametrize(("middle", "passed"), [(1.09, True), (1.11, False)])
def test_what_stays_undecided_is_decided_by_the_ratio_itself(middle: float, passed: bool) -> None:
    found = _compare(lambda _, number: (1.0, middle * (1.3 if number % 2 else 1 / 1.3)), SLOWER)
    assert found.is_undecided
    assert found.passed is passed
    assert found.interval.num_rounds == 100


def test_no_round_begins_after_the_time_is_over() -> None:
    now = iter(range(0, 100_000, 1000))
    found = compare_rounds(
        {GATE: SLOWER}, lambda _gate, _number: (1.0, 2.0), Silent(), clock=lambda: next(now)
    )
    # Three in any case, and what they say decides.
    assert found[GATE].interval.num_rounds == 3
    assert not found[GATE].passed
    assert not found[GATE].is_undecided


def test_the_figures_of_a_round_are_medians_over_its_turns() -> None:
    turns = [
        Turn(num_tokens=100, seconds=(0.1, 0.2, 9.0)),
        Turn(num_tokens=100, seconds=(0.2, 0.3)),
    ]
    assert figure_of(SINGLE, turns) == 0.2
    assert figure_of(BATCH, turns) == 100 / 0.2


def _pairs(generator: np.random.Generator, ratio: float, count: int) -> list[Pair]:
    noise: NDArray[np.float64] = np.exp(generator.normal(0.0, 0.1, (count, 2)))
    return [(float(a), ratio * float(b)) for a, b in noise]


def _compare(measure: Measure, bound: Bound) -> Comparison:
    return compare_rounds({GATE: bound}, measure, Silent())[GATE]


def _share_passed(ratio: float, bound: Bound) -> float:
    """Of runs whose every figure is off by 10 %."""
    generator = np.random.default_rng(3)
    passed: Sequence[bool] = [
        _compare(lambda _, number, pairs=pairs: pairs[number], bound).passed  # type: ignore[misc]
        for pairs in (_pairs(generator, ratio, 100) for _ in range(RUNS))
    ]
    return sum(passed) / RUNS
