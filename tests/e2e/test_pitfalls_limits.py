"""Pitfalls of the field around limits: bodies, batches, queues, memory. Load in a short form."""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import repeat
from pathlib import Path

import pytest

from edge_case import EMBED, OPENAI, Refusal, ask, assert_near, assert_refused, embed, invalid
from http_client import HttpClient, Json
from http_metrics import read_metrics, series, wait_until_idle
from server_process import ServerProcess
from tiny_artifacts import TinyArtifact

MIB = 1 << 20
WORDS = ("the", "dog", "and", "cat", "quick", "brown", "fox", "lazy", "over", "one")


@pytest.fixture(scope="module")
def small_limits(minilm_artifact: Path) -> Iterator[ServerProcess]:
    """Little bodies, few items in a request and in a batch."""
    limits = ("--payload-limit", "2000000", "--max-client-batch-size", "32")
    batches = ("--dtype", "float32", "--max-batch-requests", "4")
    with ServerProcess(minilm_artifact, *limits, *batches) as server:
        yield server


@pytest.fixture(scope="module")
def large_limits(small: TinyArtifact) -> Iterator[ServerProcess]:
    """Many items in a request."""
    limits = ("--max-client-batch-size", "6000", "--max-queue-tokens", "1000000")
    with ServerProcess(small.artifact, *limits) as server:
        yield server


def num_computed(server: ServerProcess) -> float:
    return series(read_metrics(server), "infinity_tokens_total")


def test_pit_04_bodies_of_two_megabytes(
    minilm_server: ServerProcess, small_limits: ServerProcess
) -> None:
    body = {"inputs": "hello " * 350_000, "truncate": True}
    assert minilm_server.post(EMBED, body).status == 200
    refusal = Refusal(status=413, kind="PayloadTooLarge", fragments=("2000000", "--payload-limit"))
    assert_refused(small_limits.post(EMBED, body), EMBED, refusal)
    assert small_limits.post(EMBED, {"inputs": "a"}).status == 200


def test_pit_05_too_many_items_compute_nothing(small_limits: ServerProcess) -> None:
    before = num_computed(small_limits)
    for path, field in ((EMBED, "inputs"), (OPENAI, "input")):
        message = "batch size 100 > maximum allowed batch size 32"
        refusal = invalid(message, "--max-client-batch-size", code="batch_too_large")
        assert_refused(small_limits.post(path, {field: ["a"] * 100}), path, refusal)
    wait_until_idle(small_limits)
    assert num_computed(small_limits) == before
    assert small_limits.post(EMBED, {"inputs": ["a"] * 32}).status == 200


@pytest.mark.parametrize("inputs", [["a"] * 32, [f"{'a ' * place}b" for place in range(1, 31)]])
def test_pit_34_few_items_in_a_batch(small_limits: ServerProcess, inputs: list[str]) -> None:
    before = read_metrics(small_limits)
    assert small_limits.post(EMBED, {"inputs": inputs}).status == 200
    wait_until_idle(small_limits)
    after = read_metrics(small_limits)

    def grown(name: str) -> float:
        return after[name] - before[name]

    num_batches = grown("te_batch_next_size_count")
    assert num_batches == grown('te_batch_next_size_bucket{le="4"}') >= len(inputs) / 4
    assert grown("te_batch_next_size_sum") == len(inputs)


def test_pit_09_inputs_longer_than_a_batch_are_cut(
    minilm_artifact: Path, minilm_server: ServerProcess
) -> None:
    options = ("--dtype", "float32", "--max-batch-tokens", "128", "--default-prompt", "query: ")
    with (
        ServerProcess(minilm_artifact, *options) as server,
        HttpClient(server.base_url, timeout_s=30.0) as client,
        HttpClient(minilm_server.base_url) as plain,
    ):
        info: Json = client.get("/info").json()
        assert (info["max_input_length"], info["max_batch_tokens"]) == (128, 128)
        warnings = [line for line in server.log.splitlines() if "WARN" in line.upper()]
        assert any("128" in line for line in warnings), server.log
        usage = ask(client, OPENAI, {"input": "hello " * 510})["usage"]
        assert usage["total_tokens"] == 128
        assert len(embed(client, ["hello " * 510] * 5)) == 5
        # Row 23: the default prompt, on a real model.
        assert_near(embed(client, "test"), embed(plain, "query: test"), atol=1e-6)


def test_pit_09_without_truncation_it_does_not_start(minilm_artifact: Path) -> None:
    done = run_server(minilm_artifact, "--max-batch-tokens", "128", "--auto-truncate=false")
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: --max-batch-tokens")
    assert "128" in line
    assert "--auto-truncate" in line


def run_server(model: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    """Start a server that cannot."""
    program = Path(sys.executable).with_name("infinity_v3")
    quiet = ("--port", "0", "--prometheus-port", "0", "--log-level", "error")
    return subprocess.run(
        [program, "--model-id", model, *options, *quiet],
        capture_output=True,
        text=True,
        env={name: value for name, value in os.environ.items() if "INFINITY_" not in name},
        timeout=60,
        check=False,
    )


def random_texts(choice: random.Random, num_items: int) -> list[str]:
    return [" ".join(choice.choices(WORDS, k=choice.randint(1, 28))) for _ in range(num_items)]


def test_pit_07_overload_is_refused_and_forgotten(small: TinyArtifact) -> None:
    limits = ("--max-concurrent-requests", "6", "--max-queue-tokens", "250")
    with ServerProcess(small.artifact, *limits) as server, ThreadPoolExecutor(24) as pool:
        until_s = time.monotonic() + 2.0
        seen: Counter[tuple[int, str]] = Counter()
        for found in pool.map(partial(besiege, server, until_s), range(24)):
            seen += found
        assert set(status for status, _ in seen) == {200, 429}
        assert {flag for status, flag in seen if status == 429} == {
            "--max-concurrent-requests",
            "--max-queue-tokens",
        }
        wait_until_idle(server)
        for seed in range(20):
            body = {"inputs": random_texts(random.Random(seed), 4)}
            assert server.post(EMBED, body).status == 200
        assert "Traceback" not in server.log


def besiege(server: ServerProcess, until_s: float, seed: int) -> "Counter[tuple[int, str]]":
    """Ask without a pause; counts (status, flag that the message names)."""
    choice, seen = random.Random(seed), Counter[tuple[int, str]]()
    with HttpClient(server.base_url) as client:
        while time.monotonic() < until_s:
            reply = client.post(EMBED, {"inputs": random_texts(choice, choice.randint(1, 8))})
            flag = ""
            if reply.status == 429:
                assert 1 <= int(reply.headers["retry-after"]) <= 60
                message = reply.body.decode()
                flags = ("--max-concurrent-requests", "--max-queue-tokens")
                flag = next(name for name in flags if name in message)
            seen[reply.status, flag] += 1
    return seen


def test_pit_21_memory_reaches_a_plateau(large_limits: ServerProcess) -> None:
    resident = []
    with ThreadPoolExecutor(4) as pool:
        for part in range(4):
            seeds = range(4 * part, 4 * part + 4)
            list(pool.map(ask_often, repeat(large_limits), seeds))
            resident.append(large_limits.rss_bytes / MIB)
    assert resident[-1] - resident[1] < 10, f"MiB after every 250 requests: {resident}"


def ask_often(server: ServerProcess, seed: int) -> None:
    choice = random.Random(seed)
    with HttpClient(server.base_url) as client:
        for _ in range(63):
            body = {"inputs": random_texts(choice, choice.randint(1, 3))}
            assert client.post(EMBED, body).status == 200


def test_pit_30_six_thousand_inputs_stream_through(large_limits: ServerProcess) -> None:
    texts = random_texts(random.Random(30), 6000)
    with HttpClient(large_limits.base_url) as client, watched(large_limits) as resident:
        before = series(read_metrics(client), "te_batch_next_size_count")
        rows = embed(client, texts)
        after = series(read_metrics(client), "te_batch_next_size_count")
        sample = range(0, 6000, 600)
        alone = embed(client, [texts[place] for place in sample])
    assert len(rows) == 6000
    assert after - before >= 4, "it did not stream through the queue"
    assert_near(rows[list(sample)], alone, atol=1e-5)
    assert (max(resident) - resident[0]) / MIB < 300, f"{[mib // MIB for mib in resident]}"


@contextmanager
def watched(server: ServerProcess) -> Iterator[Sequence[int]]:
    """Resident bytes of a process, again and again while the block runs."""
    resident, is_over = [server.rss_bytes], threading.Event()

    def watch() -> None:
        while not is_over.wait(0.02):
            resident.append(server.rss_bytes)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield resident
    finally:
        is_over.set()
        thread.join()


def test_pit_30_minus_one_is_the_limit(large_limits: ServerProcess) -> None:
    with HttpClient(large_limits.base_url) as client:
        info: Json = client.get("/info").json()
        body = {"input": "dog " * 500, "truncate_prompt_tokens": -1}
        usage = ask(client, OPENAI, body)["usage"]
    assert usage["total_tokens"] == info["max_input_length"] == 32
