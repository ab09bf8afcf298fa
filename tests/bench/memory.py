"""Measures the server's resident memory over many requests of random lengths."""

import argparse
import http.client
import json
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from machine import describe_machine

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "support"))

from server_process import ServerProcess

WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")
FIRST_MARK = 1_000
MAX_WORDS = 300
MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Clients that ask at the same time, one request after the other each."""

    base_url: str
    num_clients: int
    max_items: int


def main() -> None:
    options = _parse()
    with ServerProcess(options.artifact) as server:
        load = Load(base_url=server.base_url, num_clients=options.clients, max_items=options.items)
        rss = dict(_resident_mib(server, load, options.requests))
    growth = round(rss[options.requests] - rss[FIRST_MARK], 1)
    figures = {"rss_mib": rss, "growth_mib": growth}
    if options.json:
        print(json.dumps({"memory": figures, "machine": describe_machine()}))
        return
    print(json.dumps(describe_machine()))
    print("| requests | resident MiB |\n|---:|---:|")
    for num_requests, mib in rss.items():
        print(f"| {num_requests:,} | {mib} |")
    print(f"growth from request {FIRST_MARK:,} to {options.requests:,}: {growth} MiB")


def _resident_mib(
    server: ServerProcess, load: Load, num_requests: int
) -> Iterator[tuple[int, float]]:
    """Give (requests so far, resident MiB) after every thousand."""
    with ThreadPoolExecutor(load.num_clients) as clients:
        for done in range(FIRST_MARK, num_requests + 1, FIRST_MARK):
            seeds = [done + client for client in range(load.num_clients)]
            list(clients.map(partial(_ask, load), seeds))
            yield done, round(server.rss_bytes / MIB, 1)


def _ask(load: Load, seed: int) -> None:
    """Send one client's share of a thousand requests, on one connection.

    Raises:
        SystemExit: an answer other than 200.
    """
    choice = random.Random(seed)
    connection = http.client.HTTPConnection(urlsplit(load.base_url).netloc, timeout=60)
    for _ in range(FIRST_MARK // load.num_clients):
        body = json.dumps(
            {"inputs": [_text(choice) for _ in range(choice.randint(1, load.max_items))]}
        )
        connection.request("POST", "/embed", body, {"content-type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise SystemExit(f"/embed answered {reply.status}: {content.decode()}")
    connection.close()


def _text(choice: random.Random) -> str:
    return " ".join(choice.choices(WORDS, k=choice.randint(1, MAX_WORDS)))


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--artifact", type=Path, required=True)
    parser.add_argument("--requests", type=int, default=20_000, help="a multiple of 1,000")
    parser.add_argument("--clients", type=int, default=1, help="that ask at the same time")
    parser.add_argument("--items", type=int, default=1, help="most texts of one request")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    if options.requests < FIRST_MARK or options.requests % FIRST_MARK:
        parser.error(f"--requests {options.requests}: expected a multiple of {FIRST_MARK}")
    if options.clients < 1 or FIRST_MARK % options.clients or options.items < 1:
        parser.error(f"--clients: expected a divisor of {FIRST_MARK}; --items: expected 1 or more")
    return options


if __name__ == "__main__":
    main()
