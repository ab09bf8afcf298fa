"""Compares this server with infinity_emb (torch) and with vLLM built for CPUs.

All serve the same checkpoints with the same number of threads and take turns under the same
clients, which send the same bytes. Before anything is timed their vectors are compared.

    python3 -m venv PEER
    PEER/bin/pip install torch==2.13.0 'infinity-emb[torch,server]==0.0.78'
    python tests/bench/servers.py --artifact DIR --checkpoint DIR --infinity PEER/bin/infinity_emb
"""

import argparse
import json
import math
import statistics
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from http_load import Load
from machine import describe_machine
from peer_servers import (
    MODEL_NAME,
    Contestant,
    PeerServer,
    infinity_emb,
    our_server,
    peer_server,
    vllm_cpu,
)
from server_loads import Workload, embedding_workloads, rerank_workload, short_texts

MIN_COSINE = 0.99
OFFERED_SHARE = 0.7
"""Of what 32 clients get from this server."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """The runs of one workload by server, ours first."""

    workload: Workload
    runs: Mapping[str, Sequence[Load]]

    def ratio(self, peer: str) -> float:
        """Requests per second, ours over the peer's: the median of the rounds' own ratios."""
        ours = next(iter(self.runs.values()))
        return statistics.median(
            a.requests_per_s / b.requests_per_s for a, b in zip(ours, self.runs[peer], strict=True)
        )


def main() -> None:
    options = _parse()
    contests: list[Contest] = []
    with _servers(options.artifact, options.checkpoint, options) as servers:
        _check_agreement(servers, short_texts(16))
        rate_per_s: float | None = None
        for workload in embedding_workloads():
            contest = Contest(
                workload=workload, runs=_rounds(servers, workload, options, rate_per_s)
            )
            if workload.clients == 32:
                rate_per_s = OFFERED_SHARE * _median(contest.runs[servers[0].name])
            contests.append(contest)
    if options.reranker is not None:
        artifact, checkpoint = options.reranker
        with _servers(artifact, checkpoint, options) as servers:
            workload = rerank_workload()
            runs = _rounds(servers, workload, options, None)
            contests.append(Contest(workload=workload, runs=runs))
    machine = describe_machine(threads=options.threads, seconds=options.seconds)
    if options.json:
        print(json.dumps({"servers": _figures(contests), "machine": machine}))
        return
    print(json.dumps(machine))
    _print_table(contests)


@contextmanager
def _servers(
    artifact: Path, checkpoint: Path, options: argparse.Namespace
) -> Iterator[tuple[Contestant, ...]]:
    peers: list[PeerServer] = []
    if options.infinity is not None:
        peers.append(infinity_emb(options.infinity))
    if options.vllm is not None:
        peers.append(vllm_cpu(options.vllm))
    with ExitStack() as stack:
        others = [
            stack.enter_context(peer_server(peer, checkpoint, options.threads)) for peer in peers
        ]
        ours = stack.enter_context(our_server(artifact, options.threads))
        yield (ours, *others)


def _rounds(
    servers: Sequence[Contestant],
    workload: Workload,
    options: argparse.Namespace,
    rate_per_s: float | None,
) -> Mapping[str, Sequence[Load]]:
    runs: dict[str, list[Load]] = {server.name: [] for server in servers}
    for number in range(options.rounds + 1):
        for server in servers:
            load = workload.run(server, options.seconds, rate_per_s)
            if number:  # the first round warms up
                runs[server.name].append(load)
    return runs


def _check_agreement(servers: Sequence[Contestant], texts: Sequence[str]) -> None:
    ours, *others = servers
    for text in texts:
        expected = _embed(ours, text)
        for other in others:
            cosine = _cosine(expected, _embed(other, text))
            if cosine < MIN_COSINE:
                raise SystemExit(f"{other.name}: cosine {cosine:.4f} with ours for {text!r}")


def _embed(server: Contestant, text: str) -> list[float]:
    request = urllib.request.Request(
        server.base_url + server.embeddings_path,
        data=json.dumps({"model": MODEL_NAME, "input": text}).encode(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        vector: list[float] = json.load(reply)["data"][0]["embedding"]
    return vector


def _cosine(left: Sequence[float], right: Sequence[float]) -> float:
    product = sum(a * b for a, b in zip(left, right, strict=True))
    return product / math.sqrt(sum(a * a for a in left) * sum(b * b for b in right))


def _figures(contests: Sequence[Contest]) -> list[dict[str, object]]:
    return [
        {
            "workload": contest.workload.name,
            "server": name,
            "requests_per_s": round(_median(loads), 1),
            "refused": _refused(loads),
            "p50_ms": round(_quantile_ms(loads, 0.5), 2),
            "p99_ms": round(_quantile_ms(loads, 0.99), 2),
            "ratio": round(contest.ratio(name), 2),
        }
        for contest in contests
        for name, loads in contest.runs.items()
    ]


def _refused(loads: Sequence[Load]) -> int:
    return sum(load.refused for load in loads)


def _median(loads: Sequence[Load]) -> float:
    return statistics.median(load.requests_per_s for load in loads)


def _quantile_ms(loads: Sequence[Load], share: float) -> float:
    return 1e3 * statistics.median(load.quantile_s(share) for load in loads)


def _print_table(contests: Sequence[Contest]) -> None:
    print("| workload | server | requests/s | p50, ms | p99, ms | ours over it |")
    print("|---|---|---:|---:|---:|---:|")
    for contest in contests:
        for place, (name, loads) in enumerate(contest.runs.items()):
            ratio = f"x{contest.ratio(name):.2f}" if place else ""
            refused = _refused(loads)
            shown = f"{name}, {refused} refused" if refused else name
            print(
                f"| {'' if place else contest.workload.name} | {shown} | {_median(loads):.0f} "
                f"| {_quantile_ms(loads, 0.5):.1f} | {_quantile_ms(loads, 0.99):.1f} | {ratio} |"
            )


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True, help="of an embedding model")
    parser.add_argument("--checkpoint", type=Path, required=True, help="that it was made of")
    parser.add_argument(
        "--reranker", type=Path, nargs=2, metavar=("ARTIFACT", "CHECKPOINT"), help="of a reranker"
    )
    parser.add_argument("--infinity", type=Path, help="the infinity_emb program")
    parser.add_argument("--vllm", type=Path, help="the vllm program of the package vllm-cpu")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="per round and server")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
