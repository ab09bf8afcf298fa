"""Shows how long replies take by how much of its capacity a server is offered.

Capacity is what many clients get who each wait for their answer. Then requests leave at random
times, a Poisson process, at a share of it, and a reply's time counts from when it was due.
"""

import argparse
import asyncio
import json
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from infinity_v3.compiler.tune_server import TunedServer, quantile_s, running_server
from machine import describe_machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from load_connection import LoadConnection, request_bytes
from load_plan import make_texts, poisson_times

NUM_CLIENTS = 64
NUM_TEXTS = 500
JSON_HEADERS = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPoint:
    """What clients met at one rate."""

    share: float
    requests_per_s: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


def main() -> None:
    options = _parse()
    texts = make_texts(1, NUM_TEXTS)
    with running_server(options.artifact, (), {}, {"inputs": texts[0]}) as server:
        capacity = measure_capacity(server, texts, options.seconds)
        points = [
            measure(server, texts, share, capacity, options.seconds) for share in options.shares
        ]
    machine = describe_machine(capacity_requests_per_s=round(capacity, 1), seconds=options.seconds)
    if options.plot:
        _draw(options.plot, points)
    if options.json:
        print(json.dumps({"points": [asdict(point) for point in points], "machine": machine}))
        return
    print(json.dumps(machine))
    print("| offered, of capacity | requests/s | p50, ms | p90, ms | p99, ms |")
    print("|---:|---:|---:|---:|---:|")
    for point in points:
        print(
            f"| {point.share:.0%} | {point.requests_per_s:.0f} | {point.p50_ms:.1f} "
            f"| {point.p90_ms:.1f} | {point.p99_ms:.1f} |"
        )


def measure_capacity(server: TunedServer, texts: Sequence[str], seconds: float) -> float:
    """Requests per second of clients that each wait for their answer."""

    async def client(times_s: list[float], until_s: float, choice: random.Random) -> None:
        connection = await LoadConnection.open(server.port)
        while time.monotonic() < until_s:
            await connection.ask(_request(choice.choice(texts)))
            times_s.append(time.monotonic())
        connection.close()

    async def run() -> int:
        ended: list[float] = []
        until_s = time.monotonic() + seconds
        clients = (client(ended, until_s, random.Random(seed)) for seed in range(NUM_CLIENTS))
        await asyncio.gather(*clients)
        return sum(end <= until_s for end in ended)

    asyncio.run(run())  # the first round warms up
    return asyncio.run(run()) / seconds


def measure(
    server: TunedServer, texts: Sequence[str], share: float, capacity: float, seconds: float
) -> LoadPoint:
    """Offer a share of the capacity for so long."""
    times = poisson_times(int(share * 1000), rate_per_s=share * capacity, duration_s=seconds)
    replies_s = asyncio.run(_open_loop(server.port, texts, times))
    return LoadPoint(
        share=share,
        requests_per_s=len(times) / seconds,
        p50_ms=quantile_s(replies_s, 0.5) * 1e3,
        p90_ms=quantile_s(replies_s, 0.9) * 1e3,
        p99_ms=quantile_s(replies_s, 0.99) * 1e3,
    )


async def _open_loop(port: int, texts: Sequence[str], times: Sequence[float]) -> list[float]:
    idle: list[LoadConnection] = []
    begun_s = time.monotonic()

    async def send(planned_s: float, text: str) -> float:
        connection = idle.pop() if idle else await LoadConnection.open(port)
        answer = await connection.ask(_request(text))
        if answer.status != 200:
            raise SystemExit(f"the server answered {answer.status}: it was offered too much")
        idle.append(connection)
        return time.monotonic() - begun_s - planned_s

    tasks = []
    for number, planned_s in enumerate(times):
        await asyncio.sleep(max(0.0, begun_s + planned_s - time.monotonic()))
        tasks.append(asyncio.create_task(send(planned_s, texts[number % len(texts)])))
    replies = list(await asyncio.gather(*tasks))
    for connection in idle:
        connection.close()
    return replies


def _request(text: str) -> bytes:
    return request_bytes("/embed", json.dumps({"inputs": text}).encode(), JSON_HEADERS, "bench")


def _draw(folder: Path, points: Sequence[LoadPoint]) -> None:
    from charts import draw_lines

    rows = {
        name: {100.0 * point.share: getattr(point, f"{name}_ms") for point in points}
        for name in ("p50", "p90", "p99")
    }
    names = ("offered load, % of capacity", "time of a reply, ms")
    draw_lines(folder / "latency", "Replies by offered load", names, rows)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True, help="of an embedding model")
    parser.add_argument(
        "--shares", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95]
    )
    parser.add_argument("--seconds", type=float, default=10.0, help="per share")
    parser.add_argument("--plot", type=Path, help="folder for latency.png and latency.svg")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    return parser.parse_args()


if __name__ == "__main__":
    main()
