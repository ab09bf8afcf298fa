"""Measures servers whose idle OpenMP threads spin for different times, alone or beside other work.

All servers run at once and take turns, so that only one has work; `--busy` adds processes that use
a CPU each, as a neighbour on the host would.
"""

import argparse
import json
import os
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from background import background
from infinity_v3.compiler.tune_server import quantile_s, running_server
from machine import describe_machine

NUM_CLIENTS = 32
QUESTION = {"inputs": "the quick brown fox jumps over the lazy dog"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spinning:
    """What clients of one server met: one alone, and many."""

    spin_count: int
    p50_ms: float
    p99_ms: float
    requests_per_s: float


def main() -> None:
    options = _parse()
    with background([(sys.executable, "-c", "while True: pass")] * options.busy):
        rows = measure(options.artifact, options.spins, options.rounds, options.seconds)
    machine = describe_machine(busy_processes=options.busy, rounds=options.rounds)
    if options.json:
        print(json.dumps({"servers": [asdict(row) for row in rows], "machine": machine}))
        return
    print(json.dumps(machine))
    print("| looks | p50, ms | p99, ms | requests/s |\n|---:|---:|---:|---:|")
    for row in rows:
        print(
            f"| {row.spin_count:,} | {row.p50_ms:.2f} | {row.p99_ms:.2f} "
            f"| {row.requests_per_s:.0f} |"
        )


def measure(
    artifact: Path, spin_counts: Sequence[int], num_rounds: int, seconds: float
) -> list[Spinning]:
    """Ask each server in turn, `seconds` alone and as long with many clients, per round."""
    alone: dict[int, list[float]] = defaultdict(list)
    rates: dict[int, list[float]] = defaultdict(list)
    with ExitStack() as stack:
        servers = {
            count: stack.enter_context(
                running_server(artifact, (), {"GOMP_SPINCOUNT": str(count)}, QUESTION)
            )
            for count in spin_counts
        }
        for _ in range(num_rounds):
            for count, server in servers.items():
                alone[count] += server.ask(1, seconds)
                rates[count].append(len(server.ask(NUM_CLIENTS, seconds)) / seconds)
    return [
        Spinning(
            spin_count=count,
            p50_ms=statistics.median(alone[count]) * 1e3,
            p99_ms=quantile_s(alone[count], 0.99) * 1e3,
            requests_per_s=statistics.median(rates[count]),
        )
        for count in spin_counts
    ]


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True, help="of an embedding model")
    parser.add_argument("--busy", type=int, default=0, help="processes that use a CPU each")
    parser.add_argument(
        "--spins", type=int, nargs="+", default=[200, 1_000, 3_000, 10_000, 50_000, 300_000]
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="per round, server and load")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    # Else the variable of this process would decide for every server.
    os.environ.pop("OMP_WAIT_POLICY", None)
    return options


if __name__ == "__main__":
    main()
