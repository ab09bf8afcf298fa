"""Two artifacts under measurement, each in a process of its own, taking turns on this host.

Knows nothing of bounds.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

from infinity_v3.artifacts.manifest import Target
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.asked_child import AskedChild
from infinity_v3.compiler.gates.rounds import Measure, Pair
from infinity_v3.compiler.gates.work import BATCH, SINGLE

CHILD = "infinity_v3.compiler.gates.measure_child"
MAX_P50_SLOWDOWN = "max-p50-slowdown"
MIN_THROUGHPUT_RATIO = "min-throughput-ratio"
BUDGET_S: Mapping[str, float] = {SINGLE: 0.05, BATCH: 0.1}
"""Seconds of one turn, of which each side has two per round; longer where a call takes longer."""
_WORK: Mapping[str, str] = {MAX_P50_SLOWDOWN: SINGLE, MIN_THROUGHPUT_RATIO: BATCH}


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """An artifact and the target of it that a server would choose here."""

    artifact: Artifact
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """Calls of one artifact while the other one waits.

    Attributes:
        num_tokens: of one call.
        seconds: of each call.
    """

    num_tokens: int
    seconds: tuple[float, ...]


class MeasuredChild(AskedChild):
    """See measure_child."""

    def __init__(self, runner: Runner) -> None:
        name = runner.target.name
        super().__init__(CHILD, (str(runner.artifact.path), name), name)

    def time_calls(self, kind: str) -> Turn:
        """Do one kind of work for one turn.

        Raises:
            RunFailedError: the engine could not be loaded, crashed or failed.
        """
        num_tokens, seconds = cast(tuple[int, list[float]], self.ask((kind, BUDGET_S[kind])))
        return Turn(num_tokens=num_tokens, seconds=tuple(seconds))


@contextmanager
def side_by_side(current: Runner, candidate: Runner) -> Iterator[Measure]:
    """Keep both loaded inside the block, and give what measures them in turn."""
    with MeasuredChild(current) as first, MeasuredChild(candidate) as second:

        def measure(gate: str, number: int) -> Pair:
            kind = _WORK[gate]
            # There and back, and the other way round in the next round: neither a host that warms
            # up nor one that slows down favours a side.
            leading, trailing = (first, second) if number % 2 == 0 else (second, first)
            turns: dict[int, list[Turn]] = {id(first): [], id(second): []}
            for child in (leading, trailing, trailing, leading):
                turns[id(child)].append(child.time_calls(kind))
            return figure_of(kind, turns[id(first)]), figure_of(kind, turns[id(second)])

        yield measure


def figure_of(kind: str, turns: Sequence[Turn]) -> float:
    """Median seconds of a short text alone, or tokens per second of full batches."""
    median_s = statistics.median(second for turn in turns for second in turn.seconds)
    return median_s if kind == SINGLE else turns[0].num_tokens / median_s
