"""Measures linear layers of bfloat16 numbers: our operator beside the matrix library's.

Both take turns on the same operands, with weights packed ahead of time and many copies of them, so
that each call finds its weights in the third-level cache as in an engine. The matrix library may
use no more instructions than the target has. The table shows medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from infinity_v3.artifacts.host import detect_host
from infinity_v3.artifacts.manifest import Precision
from infinity_v3.compiler.cpu_targets import CPU_TARGETS, CpuTarget
from infinity_v3.runtime.engines.spinning import limit_spinning
from machine import choose_cpus, describe_machine

if TYPE_CHECKING:
    from kernel_calls import Kernels, PreparedCall
    from linear_calls import Layer

_TARGETS = {target.name: target for target in CPU_TARGETS if target.precision is Precision.BFLOAT16}
_LIBRARY_INSTRUCTIONS = {
    "cpu-x86_64-amx-bf16": "AVX512_CORE_AMX",
    "cpu-x86_64-avx512-bf16": "AVX512_CORE_BF16",
}
"""What the matrix library may use, in its own words."""
_MIN_TIMED_S = 1e-3
"""Of one measurement: briefer calls are repeated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRate:
    """Medians of one layer at one number of rows."""

    layer: str
    rows: int
    ours_us: float
    library_us: float
    ours_gflops: float

    @property
    def ratio(self) -> float:
        """How many times as fast ours is."""
        return self.library_us / self.ours_us


def main() -> None:
    options = _parse()
    target = _target(options.target)
    os.sched_setaffinity(0, choose_cpus(options.threads))
    # OpenMP and the matrix library read these when torch is loaded, so torch is imported later.
    limit_spinning(None, os.environ)
    os.environ["ONEDNN_MAX_CPU_ISA"] = _LIBRARY_INSTRUCTIONS[target.name]
    with tempfile.TemporaryDirectory(prefix="infinity-linear-") as folder:
        rates = list(measure(target, options, Path(folder)))
    machine = describe_machine(target=target.name, threads=options.threads, rounds=options.rounds)
    if options.json:
        found = [{**asdict(rate), "ratio": round(rate.ratio, 4)} for rate in rates]
        print(json.dumps({"layers": found, "ratio": _mean_ratio(rates), "machine": machine}))
        return
    print(json.dumps(machine))
    print("\n".join(table(rates)))


def measure(target: CpuTarget, options: argparse.Namespace, folder: Path) -> Iterator[LinearRate]:
    """Build the kernels, then one rate per layer and number of rows."""
    import torch

    from kernel_calls import Kernels
    from linear_calls import LAYERS

    torch.set_num_threads(options.threads)
    kernels = Kernels(target, folder)
    for layer in LAYERS:
        for rows in options.rows:
            yield _rate(kernels, layer, rows, options.rounds)


def table(rates: Sequence[LinearRate]) -> Iterator[str]:
    """Lines of Markdown; the ratio is how many times as fast ours is."""
    yield "| layer | rows | ours, µs | ours, GFLOP/s | library, µs | ratio |"
    yield "|---|" + "---:|" * 5
    for rate in rates:
        yield (
            f"| {rate.layer} | {rate.rows} | {rate.ours_us:.0f} | {rate.ours_gflops:.0f} "
            f"| {rate.library_us:.0f} | {rate.ratio:.2f} |"
        )
    yield f"| geometric mean | | | | | {_mean_ratio(rates):.2f} |"


def _mean_ratio(rates: Sequence[LinearRate]) -> float:
    return round(math.exp(statistics.fmean(math.log(rate.ratio) for rate in rates)), 4)


def _rate(kernels: Kernels, layer: Layer, rows: int, rounds: int) -> LinearRate:
    from linear_calls import layer_calls

    with layer_calls(kernels, layer, rows) as calls:
        count = math.ceil(_MIN_TIMED_S / _seconds(calls.ours, 1))
        ours, library = [], []
        for _ in range(rounds):
            ours.append(_seconds(calls.ours, count))
            library.append(_seconds(calls.library, count))
    ours_s = statistics.median(ours)
    return LinearRate(
        layer=layer.label,
        rows=rows,
        ours_us=1e6 * ours_s,
        library_us=1e6 * statistics.median(library),
        ours_gflops=1e-9 * layer.flops(rows) / ours_s,
    )


def _seconds(calls: Sequence[PreparedCall], count: int) -> float:
    """Of one call: the mean over so many, each with other weights than the one before."""
    started_s = time.perf_counter()
    for i in range(count):
        calls[i % len(calls)].run()
    return (time.perf_counter() - started_s) / count


def _target(name: str | None) -> CpuTarget:
    isa = detect_host().isa
    runnable = [target for target in _TARGETS.values() if target.cpu.fits(isa)]
    found = [target for target in runnable if name in (None, target.name)]
    if not found:
        raise SystemExit(
            f"--target: this host runs {[target.name for target in runnable]} in bfloat16, "
            f"found {name}"
        )
    return found[0]


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(word) for word in text.split(","))
    if any(number < 1 for number in numbers):
        raise argparse.ArgumentTypeError(f"expected whole numbers from 1, found {text!r}")
    return numbers


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--target", choices=_TARGETS, help="default: the best of this host")
    parser.add_argument(
        "--rows", type=_numbers, default=(16, 32, 128, 1024, 4096), help="16,32,128,1024,4096"
    )
    parser.add_argument("--threads", type=int, default=1, help="of both")
    parser.add_argument("--rounds", type=int, default=9, help="turns; the median counts")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
