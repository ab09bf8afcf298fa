"""`locust` without its page: users who ask for every shape of batch, and the server's memory."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from client_kit import Json, ServerUrl, series

SHAPES = ("1x32", "1x128", "8x128", "32x128", "32x32..256", "8x512", "32x512")
MEMORY = "process_resident_memory_bytes"
SUCCESS = "te_request_success"
NUM_USERS = 8


def load(url: str, rounds: int) -> Sequence[Json]:
    """Let every user ask for every shape so often, and give the entries of locust's report."""
    program = Path(sys.executable).with_name("locust")
    file = Path(__file__).with_name("locustfile.py")
    command: list[str | Path] = [program, "-f", file, "--headless", "--json", "--only-summary"]
    command += ["--host", url, "--users", str(NUM_USERS), "--spawn-rate", str(NUM_USERS)]
    told = {"NUM_USERS": str(NUM_USERS), "NUM_ROUNDS": str(rounds)}
    result = subprocess.run(
        command,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        timeout=3000,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    entries: Sequence[Json] = json.loads(result.stdout)
    return entries


def test_every_shape_under_load(server: ServerUrl) -> None:
    url = server("embedding")
    load(url, 1)
    memory, answered = series(url, MEMORY), series(url, SUCCESS)
    entries = load(url, 2)
    found = {entry["name"]: (entry["num_requests"], entry["num_failures"]) for entry in entries}
    assert found == dict.fromkeys(SHAPES, (2 * NUM_USERS, 0))
    # Eight users stay below every limit: nothing is refused.
    assert series(url, SUCCESS) - answered == len(SHAPES) * 2 * NUM_USERS
    assert series(url, MEMORY) <= 1.1 * memory
