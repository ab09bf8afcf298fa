"""Several engine replicas in one server: right answers at once, on CPUs of their own."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from server_process import ServerProcess

NUM_TEXTS = 60
TOLERANCE = 1e-5  # alone against in any batch, float32


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two replicas need two CPUs")
def test_two_replicas_answer_as_one_does(
    minilm_artifact: Path, minilm_server: ServerProcess
) -> None:
    texts = [" ".join(["river", "stone", "cat"] * (1 + place % 20)) for place in range(NUM_TEXTS)]
    options = ("--dtype", "float32", "--cpu-replicas", "2", "--cpu-threads-per-replica", "1")
    with ServerProcess(minilm_artifact, *options) as server, ThreadPoolExecutor(16) as clients:

        def ask(text: str) -> object:
            reply = server.post("/embed", {"inputs": text})
            assert reply.status == 200, reply.body
            return reply.json()

        found = list(clients.map(ask, texts))
        pinned = engine_cpus(server.pid)
    expected = minilm_server.post("/embed", {"inputs": texts}).json()
    np.testing.assert_allclose(
        np.array(found).reshape(NUM_TEXTS, -1), np.array(expected), atol=TOLERANCE, rtol=0
    )
    assert len(pinned) == 2
    assert not pinned[0] & pinned[1]


def engine_cpus(pid: int) -> list[set[int]]:
    """CPUs of each engine thread that is pinned to one."""
    found = {
        frozenset(os.sched_getaffinity(int(task.name)))
        for task in Path(f"/proc/{pid}/task").iterdir()
    }
    return [set(cpus) for cpus in found if len(cpus) == 1]


def test_more_replicas_than_cpus_are_refused(minilm_artifact: Path) -> None:
    count = str(len(os.sched_getaffinity(0)) + 1)
    server = ServerProcess(minilm_artifact, "--cpu-replicas", count)
    server.start()
    try:
        assert server.process.wait(60) == 2
        assert f"--cpu-replicas {count} with 1 threads each" in server.log
    finally:
        server.kill()
