"""A real server under attack, and the questions every scenario asks of it afterwards.

Knows nothing of particular faults.
"""

import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fault_claims import Scenario
from http_client import HttpClient
from http_metrics import read_metrics, series, wait_until_idle
from http_process import num_open_files
from load_plan import VALUE_ATOL
from load_references import from_idle_server
from raw_http import RawAnswer, RawHttp, post_bytes
from server_process import ServerProcess

EMBED = "/embed"
JSON_TYPE = ("content-type", "application/json")
MIB = 1 << 20
TEXTS = ("test", "What is Deep Learning?", "a b c", "the river runs quietly " * 12)
# One input of 256 tokens, the most the model takes.
SLOW_IDS = [101, *range(2000, 2254), 102]


@dataclass(slots=True, kw_only=True)
class Target:
    """A server that is ready, with the right vectors of a few texts."""

    server: ServerProcess
    references: NDArray[np.float32] = field(default_factory=lambda: np.zeros((0, 0), np.float32))

    @classmethod
    def of(cls, server: ServerProcess) -> "Target":
        """Ask an idle server what is right."""
        return cls(server=server, references=from_idle_server(server, TEXTS))

    @property
    def port(self) -> int:
        return int(self.server.base_url.rpartition(":")[2])

    @property
    def rss_mib(self) -> float:
        return self.server.rss_bytes / MIB

    @property
    def num_files(self) -> int:
        return num_open_files(self.server.pid)

    def raw(self, *, timeout_s: float = 20.0) -> RawHttp:
        return RawHttp(self.port, timeout_s=timeout_s)

    def once(self, data: bytes) -> RawAnswer | None:
        """Send bytes on a connection of their own; None when it ends without an answer."""
        with self.raw() as connection:
            connection.send_while_open(data)
            return connection.answer_or_end()

    def post(self, body: bytes, *headers: tuple[str, str], path: str = EMBED) -> RawAnswer | None:
        return self.once(post_bytes(path, body, *(headers or (JSON_TYPE,))))

    def metric(self, prefix: str) -> float:
        return series(read_metrics(self.server), prefix)

    def claim_unharmed(self, scenario: Scenario, *, rss_before_mib: float | None = None) -> None:
        """The server is idle, ready, right, and has not grown."""
        wait_until_idle(self.server)
        scenario.claim_equal("/ready afterwards", self.server.get("/ready").status, 200)
        scenario.claim("the same vectors as before", self.is_right(), "")
        is_clean = "Traceback" not in self.server.log and "this is a bug" not in self.server.log
        scenario.claim("nothing in the log tells of a bug", is_clean, "")
        if rss_before_mib is not None:
            growth = self.rss_mib - rss_before_mib
            scenario.claim_below("growth of resident memory", growth, 64.0, "MiB")

    def is_right(self) -> bool:
        reply = self.server.post(EMBED, {"inputs": list(TEXTS)})
        return reply.status == 200 and is_near(reply.body, self.references)


def is_near(body: bytes, references: NDArray[np.float32]) -> bool:
    """Whether a JSON answer of /embed holds these vectors."""
    found = np.asarray(json.loads(body), dtype=np.float32)
    return found.shape == references.shape and bool(np.abs(found - references).max() <= VALUE_ATOL)


def error_problems(answers: Mapping[str, RawAnswer | None], statuses: set[int]) -> Sequence[str]:
    """Names of the answers that are no refusal with a reason in one of the shapes."""
    return [
        f"{name}: {answer and (answer.status, answer.body[:120])}"
        for name, answer in answers.items()
        if answer is None or answer.status not in statuses or not _has_reason(answer)
    ]


def _has_reason(answer: RawAnswer) -> bool:
    try:
        document = json.loads(answer.body)
    except ValueError:
        return False
    message = document.get("message") or document.get("error")
    return isinstance(message, str) and bool(message.strip())


class Bystander:
    """An ordinary client and a probe that ask all the time; their times show who is disturbed.

    Attributes:
        latencies_s: of answered requests.
        health_s: of /health.
        problems: what was not answered rightly.
    """

    def __init__(self, target: Target, *, pause_s: float = 0.05) -> None:
        self.latencies_s: list[float] = []
        self.health_s: list[float] = []
        self.problems: list[str] = []
        self._target = target
        self._pause_s = pause_s
        self._ended = threading.Event()

    @contextmanager
    def watching(self) -> Iterator["Bystander"]:
        """Ask while the block runs."""
        works = (self._ask, self._probe)
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            for thread in threads:
                thread.join(60)

    @property
    def slowest_s(self) -> float:
        return max(self.latencies_s, default=float("inf"))

    def _ask(self) -> None:
        expected = self._target.references[:1]
        with HttpClient(self._target.server.base_url, timeout_s=30.0) as client:
            while not self._ended.wait(self._pause_s):
                begun_s = time.monotonic()
                try:
                    reply = client.post(EMBED, {"inputs": [TEXTS[0]]})
                    self.latencies_s.append(time.monotonic() - begun_s)
                except OSError as error:
                    self.problems.append(repr(error))
                    continue
                if reply.status != 200 or not is_near(reply.body, expected):
                    self.problems.append(f"{reply.status} {reply.body[:100]!r}")

    def _probe(self) -> None:
        with HttpClient(self._target.server.base_url, timeout_s=30.0) as client:
            while not self._ended.wait(self._pause_s):
                begun_s = time.monotonic()
                try:
                    if client.get("/health").status != 200:
                        self.problems.append("/health is not 200")
                except OSError as error:
                    self.problems.append(f"/health: {error!r}")
                self.health_s.append(time.monotonic() - begun_s)
