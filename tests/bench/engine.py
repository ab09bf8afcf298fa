"""Compares the packed engine with other runtimes on one model, with the same threads.

All engines take turns in one run, each in a process of its own; see docs/performance.md.
"""

import argparse
import base64
import importlib.util
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infinity_v3.artifacts.cpu_class import CPU_CLASSES
from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Precision
from machine import choose_cpus, describe_machine
from workloads import SHAPES, num_tokens

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "support"))

from compiled import compile_checkpoint, minilm_checkpoint  # noqa: E402  (the path is set above)

NEEDS = {
    "ours": (),
    "ours-int8": (),
    "openvino": ("openvino", "transformers"),
    "onnxruntime": ("onnxruntime", "onnx", "onnxscript", "transformers"),
    "onnxruntime-int8": ("onnxruntime", "onnx", "onnxscript", "transformers"),
    "sentence-transformers": ("sentence_transformers",),
}
"""Modules that each engine needs, over what serving needs."""

INT8 = "ours-int8"
TURN_S = 0.3
MAX_SEQUENCE_LENGTH = 512
MIN_MEAN_COSINE = 0.99
MIN_COSINE = 0.95


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Median of one engine on one workload."""

    workload: str
    engine: str
    tokens_per_s: float
    ms: float


class Worker:
    """An engine's process, stopped except in its turn: idle threads take no CPU from the others."""

    def __init__(self, name: str, options: Sequence[str], num_threads: int) -> None:
        threads = {
            f"{library}_NUM_THREADS": str(num_threads) for library in ("OMP", "MKL", "OPENBLAS")
        }
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(HERE / "engine_worker.py"), name, *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **threads, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"},
            text=True,
        )
        self.name = name
        self.description: str = self._answer()["engine"]
        self._process.send_signal(signal.SIGSTOP)

    def ask(self, **command: object) -> dict[str, Any]:
        """Give the process one turn."""
        assert self._process.stdin is not None
        self._process.send_signal(signal.SIGCONT)
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._answer()
        self._process.send_signal(signal.SIGSTOP)
        return answer

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"The process of {self.name} ended; its message is above.")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def main() -> None:
    options = _parse()
    refuse_missing_modules(options.engines)
    with artifact_of(options.artifact, options.engines) as artifact, ExitStack() as stack:
        workers = [start(name, artifact, options, stack) for name in options.engines]
        agreement = check_agreement(workers)
        rows = measure(workers, options.rounds)
    machine = describe_machine(
        threads=options.threads,
        rounds=options.rounds,
        engines={worker.name: worker.description for worker in workers},
        mean_cosine=agreement,
    )
    if options.plot:
        _draw(options.plot, rows)
    if options.json:
        print(json.dumps({"rows": [_as_dict(row) for row in rows], "machine": machine}))
    else:
        print_table(rows, machine)


def check_agreement(workers: Sequence[Worker]) -> float:
    """Compare all vectors of all engines with each other.

    Returns:
        The smallest mean cosine of two engines.

    Raises:
        SystemExit: two engines disagree, so that their speeds would not be comparable.
    """
    vectors = {worker.name: _all_vectors(worker) for worker in workers}
    smallest = 1.0
    for left, right in itertools.combinations(vectors, 2):
        cosines = (vectors[left] * vectors[right]).sum(axis=1)
        mean, minimum = float(cosines.mean()), float(cosines.min())
        _say(f"{left} and {right}: cosine {mean:.5f} on average, {minimum:.5f} at least")
        if not (mean > MIN_MEAN_COSINE and minimum > MIN_COSINE):
            raise SystemExit(
                f"{left} and {right} disagree: expected a cosine above {MIN_MEAN_COSINE} on "
                f"average and above {MIN_COSINE} each, found {mean:.5f} and {minimum:.5f}"
            )
        smallest = min(smallest, mean)
    return round(smallest, 5)


def measure(workers: Sequence[Worker], num_rounds: int) -> list[Row]:
    """Let the engines take turns, workload by workload, and take medians over all rounds."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for number in range(num_rounds):
        _say(f"round {number + 1} of {num_rounds}")
        for workload in SHAPES:
            # Another order in each round: who follows the heaviest engine finds the warmest CPU.
            for worker in _rotated(workers, number):
                timings = worker.ask(time=workload, seconds=TURN_S)["seconds"]
                seconds.setdefault((workload, worker.name), []).append(statistics.median(timings))
    return [_row(workload, engine, medians) for (workload, engine), medians in seconds.items()]


def print_table(rows: Sequence[Row], machine: Mapping[str, object]) -> None:
    """Print tokens per second and, for the others, how many times as fast ours is."""
    by_cell = {(row.workload, row.engine): row for row in rows}
    engines = list(dict.fromkeys(row.engine for row in rows))
    for name, value in machine.items():
        print(f"{name}: {json.dumps(value)}")
    print("\n| tokens/s (ours ÷ it) |", *(f"{engine} |" for engine in engines))
    print("|---|" + "---:|" * len(engines))
    for workload in SHAPES:
        cells = (_cell(by_cell, workload, engine) for engine in engines)
        print(f"| {workload} |", *(f"{cell} |" for cell in cells))
    means = (_mean_ratio(by_cell, engine) for engine in engines)
    print("| geometric mean of the ratios |", *(f"{mean} |" for mean in means))


def _draw(folder: Path, rows: Sequence[Row]) -> None:
    from charts import draw_bars

    rates = {(row.engine, row.workload): row.tokens_per_s for row in rows}
    engines = dict.fromkeys(row.engine for row in rows)
    bars = {name: [rates[name, workload] for workload in SHAPES] for name in engines}
    title = "Throughput by texts x tokens of a batch"
    draw_bars(folder / "throughput", title, "tokens/s", list(SHAPES), bars)


def _mean_ratio(rows: Mapping[tuple[str, str], Row], engine: str) -> str:
    if engine == "ours" or (next(iter(SHAPES)), "ours") not in rows:
        return ""
    ratios = [rows[name, engine].ms / rows[name, "ours"].ms for name in SHAPES]
    return f"{statistics.geometric_mean(ratios):.2f}"


def _cell(rows: Mapping[tuple[str, str], Row], workload: str, engine: str) -> str:
    row, ours = rows[workload, engine], rows.get((workload, "ours"))
    if engine == "ours" or ours is None:
        return f"{row.tokens_per_s:,.0f}"
    return f"{row.tokens_per_s:,.0f} ({row.ms / ours.ms:.2f})"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, default=7, help="turns of each engine on each workload"
    )
    parser.add_argument(
        "--threads", type=int, default=len(os.sched_getaffinity(0)), help="of each engine"
    )
    parser.add_argument(
        "--engines", type=_engines, default=possible(), help=f"of {','.join(NEEDS)}"
    )
    parser.add_argument(
        "--artifact", type=Path, help="compiled before (default: compile MiniLM now)"
    )
    parser.add_argument("--dtype", default="auto", help="auto, float32 or bfloat16: target of ours")
    parser.add_argument("--plot", type=Path, help="folder for throughput.png and throughput.svg")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    if options.rounds < 1 or options.threads < 1:
        parser.error("--rounds and --threads: expected 1 or more")
    return options


def possible() -> list[str]:
    return [name for name in NEEDS if name != INT8 or _int8_target()]


def _int8_target() -> str | None:
    """The best target of this host with 8-bit products."""
    isa = detect_host().isa
    classes = (cpu for cpu in CPU_CLASSES if cpu.precision is Precision.INT8 and cpu.fits(isa))
    return next((cpu.name for cpu in classes), None)


def _engines(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in NEEDS]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]} is unknown; known are {', '.join(NEEDS)}")
    return names


def refuse_missing_modules(engines: Sequence[str]) -> None:
    missing = {
        module: engine
        for engine in engines
        for module in NEEDS[engine]
        if importlib.util.find_spec(module) is None
    }
    if missing:
        what = ", ".join(f"{module} (for {engine})" for module, engine in missing.items())
        raise SystemExit(
            f"Missing: {what}. Install them with `pip install -e '.[bench]'`, or leave those "
            "engines out with --engines."
        )


@contextmanager
def artifact_of(given: Path | None, engines: Sequence[str]) -> Iterator[Path]:
    if given is not None:
        yield given
        return
    _say("compiling all-MiniLM-L6-v2; --artifact DIR takes one that exists")
    with tempfile.TemporaryDirectory(prefix="infinity-bench-") as folder:
        path = Path(folder) / "all-MiniLM-L6-v2"
        length = ("--max-sequence-length", str(MAX_SEQUENCE_LENGTH))
        compile_checkpoint(minilm_checkpoint(), path, *length, *_targets(engines))
        yield path


def _targets(engines: Sequence[str]) -> list[str]:
    """Options that add the 8-bit engine to those that are built without asking."""
    if INT8 not in engines:
        return []
    int8 = _int8_target()
    if int8 is None:
        raise SystemExit(f"{INT8}: this CPU lacks avx512_vnni or avx512_bf16; leave it out")
    isa = detect_host().isa
    names = [cpu.name for cpu in CPU_CLASSES if cpu.fits(isa) and not cpu.is_asked_for]
    return [part for name in (*names, int8) for part in ("--target", name)]


def start(name: str, artifact: Path, options: argparse.Namespace, stack: ExitStack) -> Worker:
    cpus = ",".join(str(cpu) for cpu in choose_cpus(options.threads))
    arguments = ["--artifact", str(artifact), "--checkpoint", str(minilm_checkpoint())]
    dtype = "int8" if name == INT8 else options.dtype
    worker = Worker(name, [*arguments, "--cpus", cpus, "--dtype", dtype], options.threads)
    stack.callback(worker.close)
    _say(f"{name}: {worker.description}")
    return worker


def _all_vectors(worker: Worker) -> NDArray[np.float32]:
    answers = (worker.ask(vectors=workload) for workload in SHAPES)
    return np.concatenate(
        [
            np.frombuffer(base64.b64decode(answer["vectors"]), "<f4").reshape(answer["shape"])
            for answer in answers
        ]
    )


def _rotated(workers: Sequence[Worker], by: int) -> list[Worker]:
    start = by % len(workers)
    return [*workers[start:], *workers[:start]]


def _row(workload: str, engine: str, medians: Sequence[float]) -> Row:
    median = statistics.median(medians)
    return Row(
        workload=workload,
        engine=engine,
        tokens_per_s=round(num_tokens(workload) / median, 1),
        ms=round(median * 1000, 3),
    )


def _as_dict(row: Row) -> dict[str, object]:
    return {
        "workload": row.workload,
        "engine": row.engine,
        "tokens_per_s": row.tokens_per_s,
        "ms": row.ms,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
