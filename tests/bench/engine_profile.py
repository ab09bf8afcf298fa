"""Shows where the time of one engine call goes, operator by operator, beside what each must take.

Builds the engine of one target as the product does, with profiling hooks, and runs batches of about
as many tokens of short, middling and long texts. For each it prints a table: calls, time, rate, the
floor of this machine for the same work (operations at the rate of large square products, those of
8-bit layers at the rate of the instruction for them, bytes at the rate of copies, all measured in
the same run), and how many times the floor an operator takes.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from compiled import minilm_checkpoint
from full_size import make
from infinity_v3.compiler.progress import PlainProgress
from infinity_v3.runtime.engines.spinning import limit_spinning
from machine import choose_cpus, describe_machine

if TYPE_CHECKING:
    from operator_times import Breakdown, OperatorTime

MINILM = "all-MiniLM-L6-v2"
MODELS = ("bge-base", "modernbert-base")
_RATES = {
    "linear": "linear layers: {share:.0%} of the measured GEMM rate",
    "int8_linear": "8-bit layers: {share:.0%} of the measured rate of the instruction",
}
"""By kind of operator: what is said of how far from its floor it is."""
_UNITS = {"linear": "GFLOP/s", "attention": "GFLOP/s", "int8_linear": "Gop/s"}
_HEAD = "| operator | calls | time, µs | share | rate | floor, µs | time ÷ floor |"


def main() -> None:
    options = _parse()
    load = round(os.getloadavg()[0], 2)
    os.sched_setaffinity(0, choose_cpus(options.threads))
    # OpenMP and the profiler read these when torch is loaded, so torch is imported later.
    limit_spinning(None, os.environ)
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else each start and stop prints two lines
    with tempfile.TemporaryDirectory(prefix="infinity-profile-") as folder:
        checkpoint = _checkpoint(options, Path(folder))
        breakdowns, target = measure(checkpoint, options, Path(folder))
    machine = describe_machine(
        model=options.model or str(options.checkpoint or MINILM),
        target=target,
        threads=options.threads,
        rounds=options.rounds,
        load_before=load,
    )
    if options.json:
        shapes = [as_dict(breakdown) for breakdown in breakdowns]
        print(json.dumps({"shapes": shapes, "machine": machine}))
        return
    for name, value in machine.items():
        print(f"{name}: {json.dumps(value)}")
    for breakdown in breakdowns:
        print("\n" + "\n".join(table(breakdown)))


def measure(
    checkpoint: Path, options: argparse.Namespace, folder: Path
) -> tuple[list[Breakdown], str]:
    """Build once, then one breakdown per length."""
    from operator_times import Shape, build_engine

    engine = build_engine(
        checkpoint, options.target, options.threads, folder / "engine", PlainProgress(sys.stderr)
    )
    breakdowns = []
    for length in options.lengths:
        shape = Shape(texts=max(1, round(options.batch_tokens / length)), text_tokens=length)
        print(f"{shape.texts} texts of {length} tokens", file=sys.stderr, flush=True)
        breakdowns.append(engine.breakdown(shape, options.rounds))
    return breakdowns, engine.target.name


def table(breakdown: Breakdown) -> Iterator[str]:
    """Lines of Markdown."""
    shape, rates = breakdown.shape, breakdown.rates
    yield (
        f"{shape.texts} texts of {shape.text_tokens} tokens; floors at {rates.gflops:.0f} GFLOP/s"
        f"{'' if rates.int8_gops is None else f', {rates.int8_gops:.0f} Gop/s in 8 bits'} "
        f"and {rates.gbytes:.0f} GB/s; {breakdown.unprofiled_us:.0f} µs without the profiler"
    )
    yield ""
    yield _HEAD
    yield "|---|" + "---:|" * 6
    for operator in sorted(breakdown.operators, key=lambda one: -one.time_us):
        yield _row(operator, breakdown.total_us)
    yield (
        f"| between operators | | {breakdown.between_us:.0f} "
        f"| {breakdown.between_us / breakdown.total_us:.1%} | | | |"
    )
    floor_us = sum(operator.floor_us for operator in breakdown.operators)
    yield (
        f"| total | {sum(operator.calls for operator in breakdown.operators)} "
        f"| {breakdown.total_us:.0f} | | | {floor_us:.0f} | {breakdown.total_us / floor_us:.2f} |"
    )
    yield ""
    for kind, share in rate_shares(breakdown).items():
        yield _RATES[kind].format(share=share)


def rate_shares(breakdown: Breakdown) -> dict[str, float]:
    """By kind of linear layers: their rate together, as a share of what their floor is made of."""
    shares = {}
    for kind in _RATES:
        linear = [operator for operator in breakdown.operators if operator.kind.value == kind]
        if linear:
            floor_us = sum(one.floor_us for one in linear)
            shares[kind] = floor_us / sum(one.time_us for one in linear)
    return shares


def as_dict(breakdown: Breakdown) -> dict[str, object]:
    """What the table shows, for programs."""
    operators = [
        {**asdict(operator), "kind": operator.kind.value} for operator in breakdown.operators
    ]
    return {
        **asdict(breakdown),
        "operators": operators,
        "total_us": breakdown.total_us,
        "rate_shares": {kind: round(share, 4) for kind, share in rate_shares(breakdown).items()},
    }


def _row(operator: OperatorTime, total_us: float) -> str:
    unit = _UNITS.get(operator.kind.value, "GB/s")
    work = operator.flops if operator.kind.is_compute else operator.moved_bytes
    ratio = f"{operator.time_us / operator.floor_us:.2f}" if operator.floor_us else ""
    return (
        f"| {operator.label} | {operator.calls} | {operator.time_us:.0f} "
        f"| {operator.time_us / total_us:.1%} | {work / operator.time_us / 1e3:.1f} {unit} "
        f"| {operator.floor_us:.0f} | {ratio} |"
    )


def _checkpoint(options: argparse.Namespace, folder: Path) -> Path:
    if options.model is None:
        given: Path | None = options.checkpoint
        return given or minilm_checkpoint()
    name: str = options.model
    print(f"making {name} with random weights", file=sys.stderr, flush=True)
    make(name, folder / name)
    return folder / name


def _lengths(text: str) -> tuple[int, ...]:
    lengths = tuple(int(word) for word in text.split(","))
    if any(length < 1 for length in lengths):
        raise argparse.ArgumentTypeError(f"expected whole numbers from 1, found {text!r}")
    return lengths


def _parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    model = parser.add_mutually_exclusive_group()
    model.add_argument("--checkpoint", type=Path, help=f"default: {MINILM}")
    model.add_argument("--model", choices=MODELS, help="one of that size, with random weights")
    parser.add_argument("--target", help="default: the best of this host")
    parser.add_argument(
        "--lengths", type=_lengths, default=(16, 128, 512), help="tokens of each text: 16,128,512"
    )
    parser.add_argument("--batch-tokens", type=int, default=2048, help="tokens of a batch, about")
    parser.add_argument("--rounds", type=int, default=15, help="calls; the fastest counts")
    parser.add_argument("--threads", type=int, default=2, help="of the engine and of the floors")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args(arguments)
    for name in ("batch_tokens", "rounds", "threads"):
        if getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')}: expected 1 or more")
    return options


if __name__ == "__main__":
    main()
