"""Two artifacts under measurement, each in a process of its own, taking turns on this host.

Knows nothing of bounds.
"""

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from infinity_v3.artifacts.errors import RunFailedError
from infinity_v3.artifacts.manifest import Target
from infinity_v3.artifacts.store import Artifact
from infinity_v3.compiler.gates.rounds import Measure, Pair
from infinity_v3.compiler.gates.work import BATCH, SINGLE

CHILD = "infinity_v3.compiler.gates.measure_child"
MAX_P50_SLOWDOWN = "max-p50-slowdown"
MIN_THROUGHPUT_RATIO = "min-throughput-ratio"
BUDGET_S: Mapping[str, float] = {SINGLE: 0.1, BATCH: 0.25}
"""Seconds of one turn; an engine that takes longer for a call is called twice all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """An artifact and the target of it that a server would choose here."""

    artifact: Artifact
    target: Target


class MeasuredChild:
    """See measure_child."""

    def __init__(self, runner: Runner) -> None:
        self._target = runner.target
        self._process = subprocess.Popen(
            [sys.executable, "-m", CHILD, str(runner.artifact.path), runner.target.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "MeasuredChild":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._process.kill()
        self._process.communicate()

    def p50_s(self) -> float:
        """Median seconds of a short text alone, over one turn.

        Raises:
            RunFailedError: the engine could not be loaded, crashed or failed.
        """
        return statistics.median(self._ask(SINGLE)[1])

    def tokens_per_s(self) -> float:
        """Tokens per second in full batches, over one turn.

        Raises:
            RunFailedError: the engine could not be loaded, crashed or failed.
        """
        num_tokens, seconds = self._ask(BATCH)
        return num_tokens / statistics.median(seconds)

    def _ask(self, kind: str) -> tuple[int, list[float]]:
        process = self._process
        assert process.stdin is not None, "the child's input is a pipe; this is a bug"
        assert process.stdout is not None, "the child's output is a pipe; this is a bug"
        answer = ""
        try:
            process.stdin.write(f"{json.dumps([kind, BUDGET_S[kind]])}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except BrokenPipeError:
            pass  # it has ended: below it is asked why
        if not answer:
            _, said = process.communicate()
            last = said.strip().splitlines()[-1:] or [f"it ended with {process.returncode}"]
            raise RunFailedError(f"target {self._target.name} could not be measured: {last[0]}")
        num_tokens, seconds = json.loads(answer)
        return num_tokens, seconds


@contextmanager
def side_by_side(current: Runner, candidate: Runner) -> Iterator[Measure]:
    """Keep both loaded inside the block, and give what measures them in turn."""
    with MeasuredChild(current) as first, MeasuredChild(candidate) as second:

        def measure(gate: str, number: int) -> Pair:
            # Who goes first changes from round to round: a host that warms up favours neither.
            order = (first, second) if number % 2 == 0 else (second, first)
            found = {id(child): _figure(child, gate) for child in order}
            return found[id(first)], found[id(second)]

        yield measure


def _figure(child: MeasuredChild, gate: str) -> float:
    return child.p50_s() if gate == MAX_P50_SLOWDOWN else child.tokens_per_s()
