"""Measures the time from process start to the first 200 on /v1/embeddings, and the memory then.

One start before the measured ones brings the files into the page cache. What the server says of its
phases stands beside.
"""

import argparse
import json
import re
import statistics
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from machine import describe_machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from server_process import ServerProcess, free_port

POLL_S = 0.002
DEADLINE_S = 60.0
MIB = 1 << 20
KIB_PER_MIB = 1 << 10
SIZES = ("weights", "anonymous", "resident")
PHASES = ("config", "bind", "resolve", "load", "warmup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the server; phases as its log has them."""

    seconds: float
    phases: Mapping[str, float]
    anonymous_mib: float
    resident_mib: float


def main() -> None:
    options = _parse()
    rows = [measure(artifact, options.starts) for artifact in options.artifact]
    if options.json:
        print(json.dumps({"startup": rows, "machine": describe_machine()}))
        return
    print(json.dumps(describe_machine(starts=options.starts)))
    print("| artifact | first 200, s |", *(f"{phase}, s |" for phase in PHASES), end="")
    print(" weights, MiB | RssAnon, MiB | VmRSS, MiB |\n|---|" + "---:|" * (len(PHASES) + 4))
    for row in rows:
        phases = " | ".join(f"{row[phase]:.3f}" for phase in PHASES)
        sizes = " | ".join(f"{row[f'{name}_mib']:.0f}" for name in SIZES)
        spread = f"{row['median_s']} ({row['min_s']} to {row['max_s']})"
        print(f"| {row['artifact']} | {spread} | {phases} | {sizes} |")


def measure(artifact: Path, num_starts: int) -> dict[str, object]:
    """Medians over so many starts."""
    start_once(artifact)
    starts = [start_once(artifact) for _ in range(num_starts)]
    seconds = [start.seconds for start in starts]
    return {
        "artifact": artifact.name,
        "median_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        **{phase: _median([start.phases[phase] for start in starts]) for phase in PHASES},
        "weights_mib": weight_bytes(artifact) / MIB,
        "anonymous_mib": _median([start.anonymous_mib for start in starts]),
        "resident_mib": _median([start.resident_mib for start in starts]),
    }


def weight_bytes(artifact: Path) -> int:
    """Of the first target, which is the one that runs: its library, or the weights it shares."""
    target = json.loads((artifact / "artifact.json").read_text())["targets"][0]
    shared = target["weights"]
    path = f"weights/{shared}.safetensors" if shared else target["entry"]
    return (artifact / path).stat().st_size


def _median(figures: Sequence[float]) -> float:
    return round(statistics.median(figures), 3)


def start_once(artifact: Path) -> Start:
    """Start, ask until the answer is 200, stop.

    Raises:
        SystemExit: the server ended, or gave no answer within the deadline.
    """
    server = ServerProcess(artifact, port=free_port())
    started = time.perf_counter()
    server.start()
    try:
        while not _has_answered(server):
            if server.process.poll() is not None or time.perf_counter() - started > DEADLINE_S:
                raise SystemExit(f"no answer from the server:\n{server.log}")
            time.sleep(POLL_S)
        seconds = time.perf_counter() - started
        status = Path(f"/proc/{server.pid}/status").read_text()
        start = Start(
            seconds=seconds,
            phases={name: float(s) for name, s in re.findall(r"(\w+)=([\d.]+)s\b", server.log)},
            anonymous_mib=_status_mib(status, "RssAnon"),
            resident_mib=_status_mib(status, "VmRSS"),
        )
        server.stop()
    finally:
        server.kill()
    return start


def _status_mib(status: str, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE)
    assert found, f"the kernel does not say {name}"
    return int(found[1]) / KIB_PER_MIB


def _has_answered(server: ServerProcess) -> bool:
    try:
        return server.post("/v1/embeddings", {"input": "A cat sleeps."}).status == 200
    except OSError:  # nobody listens yet
        return False


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, nargs="+", required=True)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
