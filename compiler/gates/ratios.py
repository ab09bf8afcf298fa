"""Ratios of paired measurements: interval and verdict. Knows nothing of what was measured.

Two artifacts that take turns on one host see the same disturbances, so each round gives one ratio.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import exp, fsum, log, sqrt

_Z = 1.959963984540054
"""97.5 % of a normal distribution lies below it: what is left out on both sides is 5 %."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioInterval:
    """A ratio and its two-sided 95 % confidence interval; all > 0."""

    ratio: float
    low: float
    high: float
    num_rounds: int


class Finding(Enum):
    """What an interval says of a bound."""

    HOLDS = "holds"
    BROKEN = "broken"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A limit of a ratio: the largest that is allowed, or the least."""

    value: float
    is_upper: bool

    @property
    def text(self) -> str:
        """The limit as the table shows it."""
        return f"{'<=' if self.is_upper else '>='} {self.value:g}"

    def is_met(self, ratio: float) -> bool:
        """Tell whether one ratio is within the limit."""
        return ratio <= self.value if self.is_upper else ratio >= self.value

    def judge(self, interval: RatioInterval) -> Finding:
        """Decide by the interval: it lies within the limit as a whole, or beyond it, or across."""
        within = [self.is_met(end) for end in (interval.low, interval.high)]
        if all(within):
            return Finding.HOLDS
        return Finding.UNDECIDED if any(within) else Finding.BROKEN


def ratio_interval(pairs: Sequence[tuple[float, float]]) -> RatioInterval:
    """Student's interval of the mean logarithm of candidate / current.

    Args:
        pairs: (current, candidate) of each round, at least two, all > 0.
    """
    logs = [log(candidate / current) for current, candidate in pairs]
    count = len(logs)
    mean = fsum(logs) / count
    variance = fsum((value - mean) ** 2 for value in logs) / (count - 1)
    half = t_quantile(count - 1) * sqrt(variance / count)
    return RatioInterval(
        ratio=exp(mean), low=exp(mean - half), high=exp(mean + half), num_rounds=count
    )


def t_quantile(degrees: int) -> float:
    """The 97.5 % quantile of Student's distribution, to a thousandth from four degrees on.

    Hill's expansion around the normal quantile; Abramowitz and Stegun 26.7.5.
    """
    exact = {1: 12.706205, 2: 4.302653, 3: 3.182446}
    if degrees in exact:
        return exact[degrees]
    z2 = _Z * _Z
    terms = (
        (z2 + 1) / 4,
        ((5 * z2 + 16) * z2 + 3) / 96,
        (((3 * z2 + 19) * z2 + 17) * z2 - 15) / 384,
        ((((79 * z2 + 776) * z2 + 1482) * z2 - 1920) * z2 - 945) / 92160,
    )
    return _Z * (1 + fsum(term / degrees**power for power, term in enumerate(terms, start=1)))
