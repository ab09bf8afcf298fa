"""Sends hundreds of thousands of inputs to the codecs, the application and real servers.

    python tests/fuzz/fuzz.py [--inputs 200000] [--decisions 50000] [--minutes 25] [--json FILE]

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
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from queue import Empty
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from compiled import CompiledArtifacts, compile_checkpoint, minilm_checkpoint
from fuzz_app import FuzzApp
from fuzz_campaigns import Budget, Progress, Tally, fuzz_app, fuzz_asks, fuzz_codecs
from fuzz_decision_campaign import fuzz_decisions
from fuzz_report import FuzzOutcome, LiveMemory, render
from fuzz_servers import LiveServer, attack, check_alive, real_servers
from infinity_v3.artifacts.manifest import Kind
from matrix import Cell, cell_artifact
from run_origin import run_origin
from tiny_artifacts import FLOAT32_TARGET
from tiny_laya import LayaRecipe, make_laya_checkpoint

ROOT = Path(__file__).resolve().parents[2]
REPORT = ROOT / "docs" / "reports" / "fuzz.md"
LIVE_SHARE, CODEC_SHARE = 0.25, 0.25
SURPLUS = 1.15
"""Two parts make up to a tenth of their inputs alike, which count once."""
LIVE_DECISIONS = 0.15
"""Of the inputs to decision routes, those that go to a real server."""
WARM_SHARE = 0.3
RSS_LIMIT_MIB = 32.0
DECIDER = LayaRecipe(key="fuzzed", num_layers=1, head_layers=1, max_len=320, head_max_len=192)
ATTACKS_PER_SERVER = 300
CELLS = {
    Kind.RERANKER: Cell(family="bert", task="reranker"),
    Kind.CLASSIFIER: Cell(family="distilbert", task="classifier"),
    Kind.TOKEN_CLASSIFIER: Cell(family="bert", task="token_classifier"),
}

Message = tuple[str, str, Any]
"""Which part of the run speaks, what of, and what it says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one process sends at least, and until when.

    Attributes:
        inputs: to every route.
        decisions: of the campaign against decision routes.
        artifacts: where compiled artifacts are kept; None = made anew.
    """

    inputs: int
    decisions: int
    deadline_s: float
    artifacts: Path | None

    def budget(self, num_inputs: int) -> Budget:
        """That many inputs, in what time is left."""
        return Budget(num_inputs=num_inputs, deadline_s=self.deadline_s)


Work = Callable[[Share, int, Progress], tuple[Tally, list[LiveMemory]]]


def main() -> int:
    arguments = _arguments()
    started_s = time.monotonic()
    outcome = run(arguments, started_s)
    origin = run_origin(ROOT, seed=arguments.seed, seconds=round(time.monotonic() - started_s))
    text = render(outcome, origin, arguments.inputs, arguments.decisions)
    arguments.report.parent.mkdir(parents=True, exist_ok=True)
    arguments.report.write_text(text)
    if arguments.json:
        arguments.json.write_text(json.dumps({**origin, **outcome.as_json()}, indent=1))
    _say(f"{outcome.tally.num_inputs} distinct inputs; wrote {arguments.report}")
    for problem in outcome.problems:
        _say(f"FAILED: {problem}")
    return 1 if outcome.problems else 0


def run(arguments: argparse.Namespace, started_s: float) -> FuzzOutcome:
    """All parts at the same time, one process each: two in process, one against real servers."""
    context = multiprocessing.get_context("spawn")
    messages: Queue[Message] = context.Queue()
    num_live = int(arguments.inputs * LIVE_SHARE)
    num_live_decisions = int(arguments.decisions * LIVE_DECISIONS)
    parts: Mapping[str, tuple[Work, int, int]] = {
        "in process": (fuzz_in_process, arguments.inputs - num_live, 0),
        "decisions": (fuzz_deciding, 0, arguments.decisions - num_live_decisions),
        "live": (fuzz_live, num_live, num_live_decisions),
    }
    deadline_s = started_s + 60 * arguments.minutes
    workers = {}
    for name, (work, num_inputs, num_decisions) in parts.items():
        share = Share(
            inputs=int(num_inputs * SURPLUS),
            decisions=int(num_decisions * SURPLUS),
            deadline_s=deadline_s,
            artifacts=arguments.artifacts,
        )
        given = (name, work, messages, share, arguments.seed)
        workers[name] = context.Process(target=_guarded, args=given)
    for worker in workers.values():
        worker.start()
    outcome = FuzzOutcome(tally=Tally())
    _collect(outcome, workers, messages, started_s)
    sent = {
        "inputs": (outcome.tally.num_inputs, arguments.inputs),
        "inputs to decision routes": (outcome.tally.num_decisions, arguments.decisions),
    }
    for what, (found, wanted) in sent.items():
        if found < wanted and not outcome.problems:
            outcome.problems.append(
                f"{found} {what} in {arguments.minutes:g} minutes, not {wanted}"
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
    share: Share,
    first_seed: int,
) -> None:
    """Run one part in its own process; a failure becomes a message with its reproducer."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    def progress(text: str) -> None:
        messages.put((name, "progress", text))

    try:
        result = work(share, first_seed, progress)
    except BaseException as error:  # the other parts go on
        messages.put((name, "problem", _told(error)))
    else:
        messages.put((name, "result", result))


def _told(error: BaseException) -> str:
    """What went wrong; behind a group the errors in it."""
    parts = getattr(error, "exceptions", ())
    return "\n".join((f"{type(error).__name__}: {error}", *map(_told, parts)))


def fuzz_in_process(
    share: Share, first_seed: int, progress: Progress
) -> tuple[Tally, list[LiveMemory]]:
    """The codecs alone, then the application over the real service, mostly without weights."""
    tally = fuzz_codecs(share.budget(int(share.inputs * CODEC_SHARE)), first_seed)
    progress(f"{tally.num_inputs} inputs to the codecs")
    tally.add(fuzz_app(share.budget(share.inputs - tally.num_inputs), first_seed, progress))
    return tally, []


def fuzz_deciding(
    share: Share, first_seed: int, progress: Progress
) -> tuple[Tally, list[LiveMemory]]:
    """Decision routes over the real service with a tiny checkpoint whose graph runs eagerly."""
    app = FuzzApp(Kind.DECISION)
    try:
        return fuzz_decisions(app.ask, share.budget(share.decisions), first_seed, progress), []
    finally:
        app.close()


def fuzz_live(share: Share, first_seed: int, progress: Progress) -> tuple[Tally, list[LiveMemory]]:
    """Real processes with real engines over keep-alive connections."""
    with tempfile.TemporaryDirectory(prefix="infinity-fuzz-") as name:
        artifacts = _artifacts(share.artifacts or Path(name))
        progress(f"{len(artifacts)} artifacts are there")
        with real_servers(artifacts) as servers:
            return _attack_all(servers, share, first_seed, progress)


def _attack_all(
    servers: Sequence[LiveServer],
    share: Share,
    first_seed: int,
    progress: Progress,
) -> tuple[Tally, list[LiveMemory]]:
    asks = {server.kind: server.ask for server in servers}
    for server in servers:
        # What the C library keeps of what attacks freed is no growth: it is all there after 600.
        attack(server, first_seed, 2 * ATTACKS_PER_SERVER)
    tally = fuzz_asks(asks, share.budget(int(share.inputs * WARM_SHARE)), first_seed, progress)
    decide, half = asks[Kind.DECISION], share.budget(share.decisions // 2)
    tally.add(fuzz_decisions(decide, half, first_seed + 200_000, progress))
    before = [server.rss_mib for server in servers]
    rest = share.budget(share.inputs - tally.num_inputs)
    tally.add(fuzz_asks(asks, rest, first_seed + 100_000, progress))
    tally.add(fuzz_decisions(decide, half, first_seed + 300_000, progress))
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
    laya = compiled("laya", lambda path: make_laya_checkpoint(path, DECIDER))
    found[Kind.DECISION] = compiled(
        "decider", lambda path: compile_checkpoint(laya, path, "--target", FLOAT32_TARGET)
    )
    given = os.environ.get("INFINITY_TEST_MINILM_ARTIFACT")
    found[Kind.EMBEDDING] = Path(given) if given else compiled("minilm", _compile_minilm)
    return found


def _compile_minilm(out: Path) -> None:
    options = ("--pooling", "mean", "--target", FLOAT32_TARGET)
    compile_checkpoint(minilm_checkpoint(), out, *options)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--inputs", type=int, default=200_000, help="distinct inputs to send")
    parser.add_argument(
        "--decisions", type=int, default=50_000, help="distinct inputs to decision routes"
    )
    parser.add_argument("--minutes", type=float, default=25.0, help="time they must fit into")
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--artifacts", type=Path, help="keep compiled artifacts in this folder")
    parser.add_argument("--report", type=Path, default=REPORT)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
