"""Compares requests per second of short single texts with the infinity_emb server, torch engine.

Both servers run the same checkpoint with the same number of threads and take turns under the same
clients, which send the same bytes. Before anything is timed their vectors are compared.

    python3 -m venv PEER
    PEER/bin/pip install torch==2.13.0 'infinity-emb[torch,server]==0.0.78'
    python tests/bench/servers.py --artifact DIR --checkpoint DIR --peer PEER/bin/infinity_emb
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from http_load import Load, drive, request_bytes
from machine import describe_machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from server_process import ServerProcess, free_port

WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")
PATH = "/embeddings"
NUM_TEXTS = 512
MIN_COSINE = 0.99
START_TIMEOUT_S = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The runs of each server, round by round, by concurrency."""

    runs: Mapping[int, Mapping[str, Sequence[Load]]]


def main() -> None:
    options = _parse()
    with (
        _peer(options.peer, options.checkpoint, options.threads) as peer_url,
        _ours(options.artifact, options.threads) as our_url,
    ):
        urls = {"infinity_v3": our_url, "infinity_emb": peer_url}
        texts = _texts()
        _check_agreement(urls, texts[:16])
        runs = {clients: _rounds(urls, texts, clients, options) for clients in options.clients}
    contest = Contest(runs=runs)
    if options.json:
        print(json.dumps({"servers": _figures(contest), "machine": describe_machine()}))
        return
    print(json.dumps(describe_machine(threads=options.threads)))
    _print_table(contest)


def _rounds(
    urls: Mapping[str, str], texts: Sequence[str], clients: int, options: argparse.Namespace
) -> Mapping[str, Sequence[Load]]:
    requests = {
        name: [request_bytes(url, PATH, _body(text)) for text in texts]
        for name, url in urls.items()
    }
    runs: dict[str, list[Load]] = {name: [] for name in urls}
    for number in range(options.rounds + 1):
        for name, url in urls.items():
            load = drive(url, requests[name], clients=clients, seconds=options.seconds)
            if number:  # the first round warms up
                runs[name].append(load)
    return runs


def _check_agreement(urls: Mapping[str, str], texts: Sequence[str]) -> None:
    for text in texts:
        ours, theirs = (_embed(url, text) for url in urls.values())
        cosine = _cosine(ours, theirs)
        if cosine < MIN_COSINE:
            raise SystemExit(f"the servers' vectors differ: cosine {cosine:.4f} for {text!r}")


def _embed(base_url: str, text: str) -> list[float]:
    request = urllib.request.Request(
        base_url + PATH,
        data=json.dumps(_body(text)).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        vector: list[float] = json.load(reply)["data"][0]["embedding"]
    return vector


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(left, right, strict=True))
    return product / math.sqrt(sum(a * a for a in left) * sum(b * b for b in right))


def _body(text: str) -> Mapping[str, str]:
    return {"model": "minilm", "input": text}


def _texts() -> list[str]:
    """Five to fifteen words each; all different, so that no cache answers."""
    source = random.Random(7)
    return [
        " ".join([str(number), *source.choices(WORDS, k=source.randint(4, 14))])
        for number in range(NUM_TEXTS)
    ]


@contextmanager
def _ours(artifact: Path, threads: int) -> Iterator[str]:
    with ServerProcess(artifact, "--cpu-threads-per-replica", str(threads)) as server:
        yield server.base_url


@contextmanager
def _peer(program: Path, checkpoint: Path, threads: int) -> Iterator[str]:
    port = free_port()
    command = [str(program), "v2", "--model-id", str(checkpoint), "--served-model-name", "minilm"]
    command += ["--engine", "torch", "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": str(threads), "DO_NOT_TRACK": "1"}
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment, "INFINITY_ANONYMOUS_USAGE_STATS": "0"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_up(process, f"http://127.0.0.1:{port}")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def _wait_until_up(process: "subprocess.Popen[bytes]", base_url: str) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(base_url + "/health", timeout=5):
                return
        except OSError:  # nobody listens yet
            time.sleep(0.2)
    raise SystemExit(f"{process.args!r} did not come up; it ended with {process.poll()}")


def _figures(contest: Contest) -> dict[str, object]:
    figures: dict[str, object] = {}
    for clients, runs in contest.runs.items():
        row: dict[str, object] = {
            name: {
                "requests_per_s": round(_median(loads), 1),
                "p50_ms": round(1e3 * statistics.median(x.quantile_s(0.5) for x in loads), 2),
                "p99_ms": round(1e3 * statistics.median(x.quantile_s(0.99) for x in loads), 2),
            }
            for name, loads in runs.items()
        }
        row["ratio"] = round(_ratio(runs), 2)
        figures[str(clients)] = row
    return figures


def _median(loads: Sequence[Load]) -> float:
    return statistics.median(load.requests_per_s for load in loads)


def _ratio(runs: Mapping[str, Sequence[Load]]) -> float:
    """Ours over theirs: the median of the rounds' own ratios."""
    ours, theirs = runs.values()
    return statistics.median(
        a.requests_per_s / b.requests_per_s for a, b in zip(ours, theirs, strict=True)
    )


def _print_table(contest: Contest) -> None:
    print("| clients | server | requests/s | p50, ms | p99, ms | ratio |")
    print("|---:|---|---:|---:|---:|---:|")
    for clients, runs in contest.runs.items():
        for name, loads in runs.items():
            p50, p99 = (
                1e3 * statistics.median(load.quantile_s(share) for load in loads)
                for share in (0.5, 0.99)
            )
            ratio = f"x{_ratio(runs):.2f}" if name == "infinity_v3" else ""
            print(
                f"| {clients} | {name} | {_median(loads):.0f} | {p50:.1f} | {p99:.1f} | {ratio} |"
            )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True, help="the infinity_emb program")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="per round and server")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
