"""Holds our engines to the ratios recorded on this kind of machine, within three minutes.

The fixed reference is ONNX Runtime with dynamic int8 weights, in the same run. Ends with code 1
when a ratio fell by more than 15 %, so that somebody looks.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import engine
from machine import describe_machine
from workloads import SHAPES

RECORD = Path(__file__).with_name("recorded_ratios.json")
REFERENCE = "onnxruntime-int8"
MAX_FALL = 0.15
ROUNDS = 5

Ratios = dict[str, dict[str, float]]
"""By engine of ours and workload: how many times as fast as the reference."""


def main() -> int:
    options = _parse()
    names = [name for name in engine.possible() if name.startswith("ours")] + [REFERENCE]
    engine.refuse_missing_modules(names)
    with engine.artifact_of(options.artifact, names) as artifact, ExitStack() as stack:
        workers = [engine.start(name, artifact, options, stack) for name in names]
        engine.check_agreement(workers)
        ratios = ratios_of(engine.measure(workers, options.rounds))
    machine = f"{describe_machine()['cpu']}, {options.threads} threads"
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if options.record:
        RECORD.write_text(json.dumps(recorded | {machine: ratios}, indent=1, sort_keys=True) + "\n")
    fallen = find_fallen(ratios, recorded.get(machine, {}))
    if options.json:
        print(json.dumps({"machine": machine, "ratios": ratios, "fallen": fallen}))
    else:
        _print_table(machine, ratios, recorded.get(machine, {}), fallen)
    return 1 if fallen and not options.record else 0


def ratios_of(rows: Sequence[engine.Row]) -> Ratios:
    """Ratios of times, theirs by ours."""
    ms = {(row.engine, row.workload): row.ms for row in rows}
    ours = [name for name in dict.fromkeys(row.engine for row in rows) if name != REFERENCE]
    return {
        name: {
            workload: round(ms[REFERENCE, workload] / ms[name, workload], 3) for workload in SHAPES
        }
        for name in ours
    }


def find_fallen(ratios: Ratios, recorded: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A sentence for each ratio that is more than MAX_FALL below the recorded one."""
    return [
        f"{name} {workload}: {ratio:.2f} times the reference, recorded was {before:.2f}"
        for name, row in ratios.items()
        for workload, ratio in row.items()
        if (before := recorded.get(name, {}).get(workload)) and ratio < before * (1.0 - MAX_FALL)
    ]


def _print_table(
    machine: str,
    ratios: Ratios,
    recorded: Mapping[str, Mapping[str, float]],
    fallen: Sequence[str],
) -> None:
    print(f"{machine}: times as fast as {REFERENCE} (recorded)")
    for name, row in ratios.items():
        before = recorded.get(name, {})
        for workload, ratio in row.items():
            known = f" ({before[workload]:.2f})" if workload in before else ""
            print(f"{name:10} {workload:10} {ratio:.2f}{known}")
        print(f"{name:10} {'mean':10} {statistics.geometric_mean(row.values()):.2f}")
    if not recorded:
        print("nothing is recorded for this machine; --record does it")
    for sentence in fallen:
        print(f"fallen: {sentence}")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, help="compiled before (default: compile now)")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--record", action="store_true", help="keep these ratios for later runs")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    parser.set_defaults(dtype="auto")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
