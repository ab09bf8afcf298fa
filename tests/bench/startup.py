"""Measures the time from process start to the first 200 on /v1/embeddings, and the memory then.

One start before the measured ones brings the files into the page cache.
"""

import argparse
import json
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from machine import describe_machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from server_process import ServerProcess, free_port

POLL_S = 0.002
DEADLINE_S = 60.0
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """One start of the server."""

    seconds: float
    rss_mib: float


def main() -> None:
    options = _parse()
    start_once(options.artifact)
    starts = [start_once(options.artifact) for _ in range(options.starts)]
    seconds = [start.seconds for start in starts]
    figures = {
        "starts": len(starts),
        "median_s": round(statistics.median(seconds), 3),
        "min_s": round(min(seconds), 3),
        "max_s": round(max(seconds), 3),
        "rss_mib": round(statistics.median(start.rss_mib for start in starts), 1),
    }
    if options.json:
        print(json.dumps({"startup": figures, "machine": describe_machine()}))
        return
    print(json.dumps(describe_machine()))
    print(
        f"process start to first 200 on /v1/embeddings: median {figures['median_s']} s of "
        f"{figures['starts']} ({figures['min_s']} to {figures['max_s']}), "
        f"resident memory {figures['rss_mib']} MiB"
    )


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
        start = Start(seconds=time.perf_counter() - started, rss_mib=server.rss_bytes / MIB)
        server.stop()
    finally:
        server.kill()
    return start


def _has_answered(server: ServerProcess) -> bool:
    try:
        return server.post("/v1/embeddings", {"input": "A cat sleeps."}).status == 200
    except OSError:  # nobody listens yet
        return False


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--starts", type=int, default=10)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
