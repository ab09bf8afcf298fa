"""Over a thousand broken requests to a real server: refused, forgotten, and it still serves."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from http_malformed import Attack, Outcome, attacks, send
from http_metrics import read_metrics, series, wait_until_idle
from http_process import num_open_files
from server_process import ServerProcess

NUM_CLIENTS = 4
NUM_WARM = 450
NUM_ATTACKS = 1350
MIB = 1 << 20
REFUSALS = {400, 404, 405, 408, 413, 415, 422, 424}


@dataclass(frozen=True, slots=True, kw_only=True)
class Siege:
    """What a server was like before and after the attacks, and what it answered."""

    server: ServerProcess
    played: list[tuple[Attack, Outcome]]
    before: list[float]
    after: list[float]
    rss_growth_mib: float
    files_before: int
    files_after: int


@pytest.fixture(scope="module")
def siege(minilm_artifact: Path) -> Iterator[Siege]:
    with ServerProcess(
        minilm_artifact, "--dtype", "float32", "--body-read-timeout", "0.5"
    ) as server:
        # What is made once, as buffers for the largest body, is made here.
        play(server, seed=1, count=NUM_WARM)
        before, rss, files = vector(server), server.rss_bytes, settled_files(server)
        played = play(server, seed=2, count=NUM_ATTACKS)
        wait_until_idle(server)
        yield Siege(
            server=server,
            played=played,
            before=before,
            after=vector(server),
            rss_growth_mib=(server.rss_bytes - rss) / MIB,
            files_before=files,
            files_after=settled_files(server, files),
        )


def play(server: ServerProcess, *, seed: int, count: int) -> list[tuple[Attack, Outcome]]:
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        chosen = list(attacks(seed, count))
        return list(zip(chosen, pool.map(partial(send, server.base_url), chosen), strict=True))


def vector(server: ServerProcess) -> list[float]:
    reply = server.post("/embed", {"inputs": "still serving"})
    assert reply.status == 200
    (row,) = json.loads(reply.body)
    return [float(value) for value in row]


def settled_files(server: ServerProcess, wanted: int = 0) -> int:
    """Descriptors once closed connections are gone, or after ten seconds."""
    deadline = time.monotonic() + 10
    found = num_open_files(server.pid)
    while time.monotonic() < deadline:
        time.sleep(0.1)
        earlier, found = found, num_open_files(server.pid)
        if found == wanted or (wanted == 0 and found == earlier):
            break
    return found


def test_enough_of_every_kind(siege: Siege) -> None:
    kinds = Counter(attack.name for attack, _ in siege.played)
    assert sum(kinds.values()) >= 1000
    assert len(kinds) == 9
    assert min(kinds.values()) >= 100


def test_never_a_server_error(siege: Siege) -> None:
    bad = [
        (attack.name, attack.data[:300], outcome.status, outcome.body[:200])
        for attack, outcome in siege.played
        if outcome.status is not None and outcome.status >= 500
    ]
    assert bad == []


def test_what_http_allows_is_refused_with_a_reason(siege: Siege) -> None:
    asked = [(a, outcome) for a, outcome in siege.played if a.is_http and not a.is_cut]
    assert len(asked) >= 800
    for attack, outcome in asked:
        assert outcome.status in REFUSALS, (attack.name, attack.data[:300], outcome)
        answer: Any = json.loads(outcome.body)
        message = answer["message"] if "message" in answer else answer["error"]
        assert isinstance(message, str)
        assert message


def test_what_is_no_http_is_never_served(siege: Siege) -> None:
    garbage = [outcome.status for attack, outcome in siege.played if attack.name == "garbage"]
    assert len(garbage) >= 100
    assert {status for status in garbage if status is not None} <= REFUSALS | {414, 431, 505}


def test_still_serving_the_same_numbers(siege: Siege) -> None:
    assert siege.after == pytest.approx(siege.before, abs=1e-5)
    assert siege.server.get("/ready").status == 200


def test_nothing_is_left_in_the_queue(siege: Siege) -> None:
    wait_until_idle(siege.server)
    samples = read_metrics(siege.server)
    assert series(samples, "te_request_failure{") > 0
    assert "Traceback" not in siege.server.log
    assert "this is a bug" not in siege.server.log


def test_memory_and_files_are_flat(siege: Siege) -> None:
    assert siege.rss_growth_mib < 16, f"grew by {siege.rss_growth_mib:.1f} MiB"
    assert siege.files_after <= siege.files_before


def test_ends_at_once(siege: Siege) -> None:
    # Last: a request that was never answered would hold the drain up.
    begun_s = time.monotonic()
    assert siege.server.stop() == 0
    assert time.monotonic() - begun_s < 15.0, "a request was never answered"
