"""Sends hundreds of thousands of inputs to the codecs, the application and real servers.

    python tests/fuzz/fuzz.py [--inputs 200000] [--minutes 15] [--seed N] [--json FILE]

Ends with 1 and a reproducer when an answer was wrong, a server grew, or the inputs did not fit
into the time. The report goes to docs/reports/fuzz.md unless --report names another file.
"""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from compiled import CompiledArtifacts, compile_checkpoint, minilm_checkpoint
from fuzz_campaigns import Budget, Progress, Tally, fuzz_app, fuzz_asks, fuzz_codecs
from fuzz_report import FuzzOutcome, LiveMemory, render
from fuzz_servers import LiveServer, attack, check_alive, real_servers
from infinity_v3.artifacts.manifest import Kind
from matrix import Cell, cell_artifact
from run_origin import run_origin

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "reports" / "fuzz.md"
LIVE_SHARE, CODEC_SHARE = 0.25, 0.25
WARM_SHARE = 0.3
RSS_LIMIT_MIB = 32.0
ATTACKS_PER_SERVER = 300
CELLS = {
    Kind.RERANKER: Cell(family="bert", task="reranker"),
    Kind.CLASSIFIER: Cell(family="distilbert", task="classifier"),
    Kind.TOKEN_CLASSIFIER: Cell(family="bert", task="token_classifier"),
}

Message = tuple[str, str, Any]
"""Which half of the run speaks, what of, and what it says."""

Work = Callable[[int, float, int, Progress], tuple[Tally, list[LiveMemory]]]


def main() -> int:
    arguments = _arguments()
    started_s = time.monotonic()
    outcome = run(arguments, started_s)
    origin = run_origin(ROOT, seed=arguments.seed, seconds=round(time.monotonic() - started_s))
    text = render(outcome, origin, arguments.inputs)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps({**origin, **outcome.as_json()}, indent=1))
    _say(f"{outcome.tally.num_inputs} distinct inputs; wrote {arguments.report}")
    for problem in outcome.problems:
        _say(f"FAILED: {problem}")
    return 1 if outcome.problems else 0


def run(arguments: argparse.Namespace, started_s: float) -> FuzzOutcome:
    """Both halves at the same time, one process each: in process, and against real servers."""
    context = multiprocessing.get_context("spawn")
    messages: Queue[Message] = context.Queue()
    num_live = int(arguments.inputs * LIVE_SHARE)
    deadline_s = started_s + 60 * arguments.minutes
    shares = {
        "in process": (fuzz_in_process, arguments.inputs - num_live),
        "live": (fuzz_live, num_live),
    }
    workers = {
        name: context.Process(
            target=_guarded, args=(name, work, messages, share, deadline_s, arguments.seed)
        )
        for name, (work, share) in shares.items()
    }
    for worker in workers.values():
        worker.start()
    outcome = FuzzOutcome(tally=Tally())
    _collect(outcome, workers, messages, started_s)
    if outcome.tally.num_inputs < arguments.inputs and not outcome.problems:
        outcome.problems.append(
            f"{outcome.tally.num_inputs} inputs in {arguments.minutes:g} minutes, "
            f"not {arguments.inputs}"
        )
    return outcome


def _collect(
    outcome: FuzzOutcome, workers: Mapping[str, Any], messages: "Queue[Message]", started_s: float
) -> None:
    waiting = set(workers)
    while waiting:
        try:
            name, what, value = messages.get(timeout=5)
        except Empty:
            gone = {name for name in waiting if not workers[name].is_alive()}
            outcome.problems += [f"{name}: ended with {workers[name].exitcode}" for name in gone]
            waiting -= gone
            continue
        if what == "progress":
            _say(f"[{time.monotonic() - started_s:4.0f} s] {name}: {value}")
            continue
        waiting.discard(name)
        if what == "problem":
            outcome.problems.append(f"{name}: {value}")
        else:
            tally, memory = value
            outcome.tally.add(tally)
            outcome.memory += memory
    for worker in workers.values():
        worker.join()


def _guarded(
    name: str,
    work: Work,
    messages: "Queue[Message]",
    share: int,
    deadline_s: float,
    first_seed: int,
) -> None:
    """Run one half in its own process; a failure becomes a message with its reproducer."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def progress(text: str) -> None:
        messages.put((name, "progress", text))

    try:
        result = work(share, deadline_s, first_seed, progress)
    except BaseException as error:  # the other half goes on
        messages.put((name, "problem", f"{type(error).__name__}: {error}"))
    else:
        messages.put((name, "result", result))


def fuzz_in_process(
    share: int, deadline_s: float, first_seed: int, progress: Progress
) -> tuple[Tally, list[LiveMemory]]:
    """The codecs alone, then the application over the real service with an engine without model."""
    num_codecs = int(share * CODEC_SHARE)
    tally = fuzz_codecs(Budget(num_inputs=num_codecs, deadline_s=deadline_s), first_seed)
    progress(f"{tally.num_inputs} inputs to the codecs")
    budget = Budget(num_inputs=share - tally.num_inputs, deadline_s=deadline_s)
    tally.add(fuzz_app(budget, first_seed, progress))
    return tally, []


def fuzz_live(
    share: int, deadline_s: float, first_seed: int, progress: Progress
) -> tuple[Tally, list[LiveMemory]]:
    """Real processes with real engines over keep-alive connections."""
    with tempfile.TemporaryDirectory(prefix="infinity-fuzz-") as name:
        artifacts = _artifacts(Path(name))
        progress(f"{len(artifacts)} artifacts are there")
        with real_servers(artifacts) as servers:
            return _attack_all(servers, share, deadline_s, first_seed, progress)


def _attack_all(
    servers: Sequence[LiveServer],
    share: int,
    deadline_s: float,
    first_seed: int,
    progress: Progress,
) -> tuple[Tally, list[LiveMemory]]:
    asks = {server.kind: server.ask for server in servers}
    for server in servers:
        attack(server, first_seed, ATTACKS_PER_SERVER // 3)
    warm = Budget(num_inputs=int(share * WARM_SHARE), deadline_s=deadline_s)
    tally = fuzz_asks(asks, warm, first_seed, progress)
    before = [server.rss_mib for server in servers]
    rest = Budget(num_inputs=share - tally.num_inputs, deadline_s=deadline_s)
    tally.add(fuzz_asks(asks, rest, first_seed + 100_000, progress))
    for server in servers:
        attack(server, first_seed + 1, ATTACKS_PER_SERVER)
        check_alive(server)
    memory = [
        LiveMemory(server=server.kind.value, before_mib=rss, after_mib=server.rss_mib)
        for server, rss in zip(servers, before, strict=True)
    ]
    for one in memory:
        assert one.after_mib - one.before_mib < RSS_LIMIT_MIB, f"{one.server} grew: {one}"
    return tally, memory


def _artifacts(folder: Path) -> Mapping[Kind, Path]:
    compiled = CompiledArtifacts(folder)
    found = {kind: cell_artifact(cell, compiled) for kind, cell in CELLS.items()}
    given = os.environ.get("INFINITY_TEST_MINILM_ARTIFACT")
    if given is None:
        compile_checkpoint(minilm_checkpoint(), folder / "minilm", "--pooling", "mean")
    return {Kind.EMBEDDING: Path(given) if given else folder / "minilm", **found}


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=200_000, help="distinct inputs to send")
    parser.add_argument("--minutes", type=float, default=15.0, help="time they must fit into")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
