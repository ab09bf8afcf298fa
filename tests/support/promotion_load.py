"""Clients that ask a server all the time, and which version of a model answered each.

Knows nothing of why the answers change.
"""

import http.client
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from http_client import HttpClient

Vectors = NDArray[np.float64]
TEXTS = ("one text", "another text", "a third one", "the last")
NUM_CLIENTS = 4
SAME = 1e-4
"""Largest difference of two answers of one version, in whatever batch; versions differ by more."""


@dataclass(kw_only=True)
class LoadReport:
    """What came back.

    Attributes:
        num_mixed: replies that are no known version's as a whole.
    """

    num_replies: int = 0
    num_mixed: int = 0
    by_version: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)


class Load:
    """Four clients, each with a connection of its own, from `start` to `stop`."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url
        self._known: dict[str, Vectors] = {}
        self._latest = ""
        self._replies: list[Vectors] = []
        self._errors: list[str] = []
        self._stopped = threading.Event()
        self._threads = [threading.Thread(target=self._ask_on) for _ in range(NUM_CLIENTS)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def ask(self) -> Vectors:
        """One reply, beside the clients'."""
        with HttpClient(self._base_url) as client:
            return _embed(client)

    def learn(self, version: str) -> None:
        """Take what the server answers now for that version's, or check that it still is."""
        self._known.setdefault(version, self.ask())
        self._latest = version

    def latest(self) -> Vectors:
        """What the version answered that was learned last."""
        return self._known[self._latest]

    def stop(self) -> LoadReport:
        """End the clients and sort what they were answered."""
        self._stopped.set()
        for thread in self._threads:
            thread.join()
        report = LoadReport(num_replies=len(self._replies), errors=self._errors)
        for reply in self._replies:
            version = nearest_version(reply, self._known)
            if version is None:
                report.num_mixed += 1
            else:
                report.by_version[version] += 1
        return report

    def _ask_on(self) -> None:
        with HttpClient(self._base_url) as client:
            while not self._stopped.is_set():
                try:
                    self._replies.append(_embed(client))
                except (OSError, http.client.HTTPException, RuntimeError) as error:
                    self._errors.append(f"{type(error).__name__}: {error}")


def nearest_version(reply: Vectors, known: Mapping[str, Vectors]) -> str | None:
    """The version that gave a reply as a whole, None where none did."""
    same = (
        version
        for version, vectors in known.items()
        if vectors.shape == reply.shape and float(np.abs(vectors - reply).max()) <= SAME
    )
    return next(same, None)


def _embed(client: HttpClient) -> Vectors:
    reply = client.post("/embed", {"inputs": list(TEXTS)})
    if reply.status != http.client.OK:
        raise RuntimeError(f"status {reply.status}: {reply.body[:200]!r}")
    return np.asarray(reply.json(), dtype=np.float64)
