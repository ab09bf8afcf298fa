"""kill -9 and a new start under clients that try again. Knows nothing of load."""

import threading
import time
from collections import Counter
from http.client import HTTPException
from pathlib import Path
from typing import Any

from fault_claims import Scenario
from fault_target import EMBED, TEXTS, Target, is_near
from http_client import HttpClient
from server_process import ServerProcess, free_port

NUM_CLIENTS = 4
_PAUSE_S = 0.02


class _Retrying:
    """A client that asks until it has an answer; every whole answer must be right."""

    def __init__(self, port: int, references: Any, number: int) -> None:  # noqa: ANN401  # an array
        self.counts: Counter[str] = Counter()
        self._url = f"http://127.0.0.1:{port}"
        self._references = references
        self._number = number

    def run(self, ended: threading.Event) -> None:
        with HttpClient(self._url, timeout_s=30.0) as client:
            while not ended.is_set():
                self._ask_until_answered(client, ended)

    def _ask_until_answered(self, client: HttpClient, ended: threading.Event) -> None:
        self._number = (self._number + 1) % len(TEXTS)
        while not ended.is_set():
            try:
                reply = client.post(EMBED, {"inputs": [TEXTS[self._number]]})
            except (OSError, HTTPException) as error:
                self.counts[f"no whole answer: {type(error).__name__}"] += 1
            else:
                if self._has_ended(reply.status, reply.body):
                    return
            time.sleep(_PAUSE_S)

    def _has_ended(self, status: int, body: bytes) -> bool:
        if status == 503:
            self.counts["not ready"] += 1
            return False
        is_right = status == 200 and is_near(body, self._references[[self._number]])
        self.counts["right" if is_right else f"WRONG {status}"] += 1
        return True


def killed_and_restarted(
    artifact: Path, scenario: Scenario, *, num_kills: int, options: tuple[str, ...]
) -> None:
    """Nothing but right answers ever arrives whole, whenever the process dies."""
    port = free_port()
    server = ServerProcess(artifact, *options, port=port)
    with server:
        references = Target.of(server).references
        clients = [_Retrying(port, references, number) for number in range(NUM_CLIENTS)]
        ended = threading.Event()
        threads = [threading.Thread(target=c.run, args=(ended,), daemon=True) for c in clients]
        for thread in threads:
            thread.start()
        _kill_again_and_again(server, clients, num_kills)
        ended.set()
        for thread in threads:
            thread.join(60)
        counts = sum((client.counts for client in clients), Counter[str]())
        wrong = {name: count for name, count in counts.items() if "WRONG" in name}
        scenario.claim_equal("whole answers that were wrong", wrong, {})
        scenario.claim("clients met the dead server", len(counts) > 1, dict(counts))
        scenario.claim_equal("clients that hang", sum(t.is_alive() for t in threads), 0)
        scenario.claim(
            "the last server is right", Target(server=server, references=references).is_right(), ""
        )
        scenario.claim_equal("the last server ends with 0", server.stop(), 0)


def _kill_again_and_again(server: ServerProcess, clients: list[_Retrying], num_kills: int) -> None:
    for _ in range(num_kills):
        _wait_for_answers(clients)
        server.process.kill()
        server.process.wait(10)
        time.sleep(0.1)
        server.start()
        server.wait_until_ready()
    _wait_for_answers(clients)


def _wait_for_answers(clients: list[_Retrying]) -> None:
    """Every client gets a few more answers."""
    wanted = [client.counts["right"] + 5 for client in clients]
    deadline = time.monotonic() + 60
    while any(c.counts["right"] < w for c, w in zip(clients, wanted, strict=True)):
        assert time.monotonic() < deadline, f"no answers: {[dict(c.counts) for c in clients]}"
        time.sleep(0.01)
