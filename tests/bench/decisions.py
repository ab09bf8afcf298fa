"""Decisions per second and latency of a server against the `laya` package in its own process.

The model has the shape of ModernBERT-large and random weights. The sides take turns, one request at
a time, so that none has a warmer machine. The package runs on every CPU that the server may use: as
it comes, which is in float32, in bfloat16, and in bfloat16 under torch.compile, both of which its
users have to ask for.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections import defaultdict
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from laya import Agent

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from compiled import compile_checkpoint
from infinity_v3.compiler.tune_server import TunedServer, running_server
from machine import describe_machine
from tiny_laya import LayaRecipe, make_laya_checkpoint

COUNTS = (1, 16)
PACKAGES = {
    "laya as it comes": (False, ""),
    "laya, bfloat16": (False, "bf16"),
    "laya, bfloat16, compiled": (True, "bf16"),
}
"""Whether torch.compile is used, and the number format."""
SERVER = "infinity_v3, over HTTP"
FORMAT_VARIABLE = "LAYA_CPU_AMP"
"""How the package is told to run in bfloat16 on a CPU."""
WARM_CALLS = 3
STATE = "the order is three weeks late and nobody answers the phone or the mail " * 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One side under one load."""

    side: str
    questions: int
    num_requests: int
    p50_ms: float
    decisions_per_s: float


def main() -> None:
    options = _parse()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, artifact = _make(options, Path(folder))
        rows = measure(checkpoint, artifact, options)
    machine = describe_machine(rounds=options.rounds, layers=options.layers, target=options.target)
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "machine": machine}))
        return
    print(json.dumps(machine))
    print("| side | questions | requests | p50, ms | decisions/s |\n|---|---:|---:|---:|---:|")
    for row in rows:
        print(
            f"| {row.side} | {row.questions} | {row.num_requests} | {row.p50_ms:.1f} "
            f"| {row.decisions_per_s:.2f} |"
        )


def measure(checkpoint: Path, artifact: Path, options: argparse.Namespace) -> list[Figures]:
    """Ask each side in turn, for so many seconds per round and number of questions."""
    times_s: dict[tuple[str, int], list[float]] = defaultdict(list)
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    agents = {
        name: _open(checkpoint, is_compiled=is_compiled, number_format=number_format)
        for name, (is_compiled, number_format) in PACKAGES.items()
    }
    seconds = options.seconds
    for count in COUNTS:
        body = {"state": STATE, "questions": _questions(count)}
        with ExitStack() as stack:
            server: TunedServer = stack.enter_context(running_server(artifact, (), {}, body))
            for _ in range(WARM_CALLS):
                server.ask(1, 0.0)
                for agent in agents.values():
                    _ask_package(agent, body, 0.0)
            for _ in range(options.rounds):
                times_s[SERVER, count] += server.ask(1, seconds)
                for side, agent in agents.items():
                    times_s[side, count] += _ask_package(agent, body, seconds)
    return [
        Figures(
            side=side,
            questions=count,
            num_requests=len(found),
            p50_ms=statistics.median(found) * 1e3,
            decisions_per_s=count * len(found) / sum(found),
        )
        for (side, count), found in times_s.items()
    ]


def _open(checkpoint: Path, *, is_compiled: bool, number_format: str) -> Any:
    os.environ[FORMAT_VARIABLE] = number_format
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Its `backend="compile"` is for CUDA; the flag compiles on a CPU, too.
        return Agent(str(checkpoint), device="cpu", compile=is_compiled)


def _ask_package(agent: Any, body: dict[str, Any], seconds: float) -> list[float]:
    times_s: list[float] = []
    until_s = time.perf_counter() + seconds
    while not times_s or time.perf_counter() < until_s:
        begun_s = time.perf_counter()
        agent.system_one(body["state"], body["questions"])
        times_s.append(time.perf_counter() - begun_s)
    return times_s


def _questions(count: int) -> dict[str, Any]:
    choice, score = {"criteria": ["a", "b", "c"]}, {"criteria": ["low", "mid", "high"]}
    kinds: tuple[dict[str, Any], ...] = (
        {"type": "noul"},
        {"type": "choice", **choice},
        {"type": "score", **score},
    )
    return {
        f"q{i}": {**kinds[i % len(kinds)], "instructions": f"what of {i}?"} for i in range(count)
    }


def _make(options: argparse.Namespace, folder: Path) -> tuple[Path, Path]:
    recipe = LayaRecipe(
        key="large",
        seed=11,
        width=1024,
        num_layers=options.layers,
        num_heads=16,
        intermediate=2624,
    )
    checkpoint = options.checkpoint or make_laya_checkpoint(folder / "large", recipe)
    artifact = options.artifact or folder / "artifact"
    if not artifact.exists():
        compile_checkpoint(checkpoint, artifact, "--target", options.target)
    return checkpoint, artifact


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, help="a Laya checkpoint [default: random]")
    parser.add_argument("--artifact", type=Path, help="compiled from it [default: compiled here]")
    parser.add_argument("--target", default="cpu-x86_64-avx512-f32")
    parser.add_argument("--layers", type=int, default=28, help="of the random encoder")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5.0, help="per round, side and load")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
