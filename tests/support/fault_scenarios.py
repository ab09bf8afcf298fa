"""Every fault scenario in order, in a short and a long form. Knows nothing of reports."""

from collections.abc import Callable, Iterator
from pathlib import Path

from fault_bodies import (
    body_bombs,
    deep_documents,
    invalid_text,
    long_texts,
    many_inputs_answered,
    many_inputs_refused,
)
from fault_claims import Scenario
from fault_clients import disconnects, pipelining
from fault_drain import drain_timeout, drains, second_signal
from fault_heads import header_floods, odd_headers
from fault_restarts import killed_and_restarted
from fault_slow import slow_bodies, slow_heads
from fault_target import Target
from load_plan import LoadMix
from server_process import ServerProcess

OPTIONS = ("--dtype", "float32")
MANY_INPUTS = 10_000
Say = Callable[[str], None]

ON_ONE_SERVER = (
    (pipelining, "20 requests at once on one connection; connections closed on one side"),
    (disconnects, "20 clients leave while their requests wait behind another"),
    (long_texts, "nine texts of 100,000 characters, from words to zero-width joiners"),
    (many_inputs_refused, "10,000 inputs in one request, limits as shipped"),
    (body_bombs, "gzip and zstd bombs, huge windows, nested JSON, lengths that lie"),
    (invalid_text, "invalid UTF-8 and halves of surrogate pairs"),
    (deep_documents, "documents nested up to a million levels"),
    (header_floods, "heads with too many and too long headers"),
    (odd_headers, "odd and unlawful headers, two lengths for one body"),
    (slow_bodies, "60 bodies that arrive a byte at a time; then more than may be read at once"),
    (slow_heads, "120 heads that arrive a byte at a time"),
)


def run_faults(
    artifact: Path, mix: LoadMix, *, is_long: bool, say: Say, only: str = ""
) -> Iterator[Scenario]:
    """Run the scenarios whose name holds `only`; each is finished when it comes."""
    names = [work.__name__ for work, _ in ON_ONE_SERVER]
    if any(only in name for name in names):
        with ServerProcess(artifact, "--body-read-timeout", "2", *OPTIONS) as server:
            target = Target.of(server)
            for work, what in ON_ONE_SERVER:
                if only in work.__name__:
                    scenario = _scenario(work.__name__, what)
                    with scenario.running(say):
                        work(target, scenario, is_long=is_long)
                    yield scenario
    for name, (what, run) in _alone(artifact, mix, is_long=is_long).items():
        if only in name:
            scenario = _scenario(name, what)
            with scenario.running(say):
                run(scenario)
            yield scenario


def _alone(
    artifact: Path, mix: LoadMix, *, is_long: bool
) -> dict[str, tuple[str, Callable[[Scenario], None]]]:
    """Scenarios with servers of their own."""
    count = MANY_INPUTS if is_long else 1500

    def many(scenario: Scenario) -> None:
        limits = ("--max-client-batch-size", str(count), "--max-queue-tokens", "1000000")
        with ServerProcess(artifact, *limits, *OPTIONS) as server:
            many_inputs_answered(Target.of(server), scenario, count=count, is_long=is_long)

    return {
        "many_inputs_answered": (f"{count:,} inputs in one request, limits raised", many),
        "killed_and_restarted": (
            "kill -9 and restart under four clients that try again",
            lambda scenario: killed_and_restarted(
                artifact, scenario, num_kills=8 if is_long else 1, options=OPTIONS
            ),
        ),
        "drains": (
            "SIGTERM under steady traffic",
            lambda scenario: drains(
                artifact, scenario, mix, before_s=4.0 if is_long else 0.7, options=OPTIONS
            ),
        ),
        "second_signal": (
            "a second signal while draining",
            lambda scenario: second_signal(artifact, scenario, OPTIONS),
        ),
        "drain_timeout": (
            "a drain that takes too long",
            lambda scenario: drain_timeout(artifact, scenario, OPTIONS),
        ),
    }


def _scenario(name: str, what: str) -> Scenario:
    return Scenario(name=name.replace("_", " "), what=what[:1].upper() + what[1:])
