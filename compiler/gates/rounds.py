"""Rounds of measurements until every bound is decided. Knows nothing of how one is taken."""

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from infinity_v3.compiler.gates.ratios import Bound, Finding, RatioInterval, ratio_interval
from infinity_v3.compiler.progress import Stage

Pair = tuple[float, float]
"""The figure of the current artifact and of the candidate, in one round; both > 0."""
Measure = Callable[[str, int], Pair]
"""Takes one pair: by gate and number of the round, from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundLimits:
    """How long is measured.

    Attributes:
        fewest: rounds of engines that take minutes for a call; they are decided by those.
        least: rounds before anything is decided within `most_s`.
        step: rounds between two looks: who looks all the time sees what noise shows.
        most: rounds after which the point decides.
        most_s: seconds after which no further round begins, once there are `fewest`.
    """

    fewest: int = 3
    least: int = 10
    step: int = 5
    most: int = 100
    most_s: float = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What the rounds say of one gate.

    Attributes:
        current, candidate: medians over the rounds.
        is_undecided: the interval still held the bound at the end; the point decided.
    """

    current: float
    candidate: float
    interval: RatioInterval
    passed: bool
    is_undecided: bool


@dataclass(slots=True)
class _Contest:
    bound: Bound
    pairs: list[Pair] = field(default_factory=list)
    finding: Finding = Finding.UNDECIDED

    def look(self) -> None:
        self.finding = self.bound.judge(ratio_interval(self.pairs))

    def result(self) -> Comparison:
        self.look()
        interval = ratio_interval(self.pairs)
        is_undecided = self.finding is Finding.UNDECIDED
        is_met = self.bound.is_met(interval.ratio)
        return Comparison(
            current=statistics.median(current for current, _ in self.pairs),
            candidate=statistics.median(candidate for _, candidate in self.pairs),
            interval=interval,
            passed=is_met if is_undecided else self.finding is Finding.HOLDS,
            is_undecided=is_undecided,
        )


def compare_rounds(
    bounds: Mapping[str, Bound],
    measure: Measure,
    stage: Stage,
    limits: RoundLimits | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[str, Comparison]:
    """Measure round by round; what is decided is measured no longer.

    A bound is decided as soon as the 95 % interval of the ratio lies on one side of it. What is
    undecided at the end passes if the ratio itself is within the bound.

    Args:
        bounds: by gate, at least one.
        measure: takes one pair.
        stage: advances by one per round.
        limits: None = the defaults.
        clock: seconds.
    """
    limits = limits or RoundLimits()
    contests = {gate: _Contest(bound) for gate, bound in bounds.items()}
    begun_s = clock()
    for number in range(limits.most):
        if number >= limits.fewest and clock() - begun_s > limits.most_s:
            break
        is_look = number + 1 >= limits.least and (number + 1 - limits.least) % limits.step == 0
        for gate, contest in contests.items():
            if contest.finding is Finding.UNDECIDED:
                contest.pairs.append(measure(gate, number))
                if is_look:
                    contest.look()
        stage.advance()
        if all(contest.finding is not Finding.UNDECIDED for contest in contests.values()):
            break
    return {gate: contest.result() for gate, contest in contests.items()}
