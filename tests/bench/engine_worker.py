"""One engine in a process of its own: commands on standard input, answers on standard output.

Each is one line of JSON. The first answer is {"engine": description}, then

    {"vectors": WORKLOAD}                 -> {"vectors": base64 of float32, "shape": [B, D]}
    {"time": WORKLOAD, "seconds": 0.3}    -> {"seconds": [one entry per run]}

Texts are made before the clock starts. Packing is timed, padding is not.
"""

import argparse
import base64
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Run = Callable[[], NDArray[np.float32]]


def main() -> None:
    options = _parse()
    # Before any library counts CPUs or makes threads.
    os.sched_setaffinity(0, options.cpus)
    reply = _claim_standard_output()
    with tempfile.TemporaryDirectory(prefix="infinity-bench-") as folder:
        prepare, description = _open(options, Path(folder))
        reply({"engine": description})
        runs: dict[str, Run] = {}
        for line in sys.stdin:
            command = json.loads(line)
            workload = command.get("vectors") or command["time"]
            run = runs.setdefault(workload, prepare(workload))
            reply(_vectors(run) if "vectors" in command else _timings(run, command["seconds"]))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--dtype", default="auto")
    parser.add_argument(
        "--cpus", type=lambda text: {int(cpu) for cpu in text.split(",")}, required=True
    )
    return parser.parse_args()


def _claim_standard_output() -> Callable[[object], None]:
    # Libraries print as they please; what they print must not get between two answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def reply(message: object) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    return reply


def _open(options: argparse.Namespace, folder: Path) -> tuple[Callable[[str], Run], str]:
    from workloads import pad, token_ids

    num_threads = len(options.cpus)
    if options.name in ("ours", "ours-int8"):
        from ours import ours

        encode_texts, description = ours(options.artifact, options.dtype, num_threads)
        return _prepare(encode_texts, lambda name: token_ids(name, options.checkpoint)), description

    import peers

    open_peer = getattr(peers, options.name.replace("-", "_"))
    encode_padded, description = open_peer(options.checkpoint, folder, num_threads)
    return _prepare(
        encode_padded, lambda name: pad(token_ids(name, options.checkpoint))
    ), description


def _prepare(
    encode: Callable[[Any], NDArray[np.float32]], make: Callable[[str], Any]
) -> Callable[[str], Run]:
    def prepare(workload: str) -> Run:
        batch = make(workload)
        return lambda: encode(batch)

    return prepare


def _vectors(run: Run) -> dict[str, object]:
    vectors = np.ascontiguousarray(run(), dtype="<f4")
    return {"vectors": base64.b64encode(vectors.tobytes()).decode(), "shape": vectors.shape}


def _timings(run: Run, seconds: float) -> dict[str, object]:
    run()  # brings the engine's weights back into the caches after the others' turns
    timings: list[float] = []
    while sum(timings) < seconds:
        started = time.perf_counter()
        run()
        timings.append(time.perf_counter() - started)
    return {"seconds": timings}


if __name__ == "__main__":
    main()
