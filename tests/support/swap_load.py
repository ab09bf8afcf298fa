"""Clients that ask a server all the time while its model is swapped, and look at every answer.

Knows nothing of registries: of two versions it knows the vectors of a few texts.
"""

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.client import HTTPException

import numpy as np
from numpy.typing import NDArray

from http_client import HttpClient

TEXTS = ("alpha", "beta gamma", "delta epsilon zeta", "eta", "theta iota kappa lambda mu")
TOLERANCE = 1e-4
"""Alone and in a batch differ by less, two versions by far more."""

Vectors = NDArray[np.float32]
Row = tuple[str, Sequence[float]]


@dataclass(frozen=True, kw_only=True)
class Question:
    """One kind of request; `texts` in the order of the answer's rows."""

    path: str
    body: Mapping[str, object]
    texts: Sequence[str]

    def rows(self, answer: object) -> list[Row]:
        assert isinstance(answer, list | dict)
        if isinstance(answer, dict):
            answer = [row for part in answer["predictions"] for row in part]
        return list(zip(self.texts, answer, strict=True))


QUESTIONS = (
    Question(path="/embed", body={"inputs": TEXTS[0]}, texts=TEXTS[:1]),
    Question(path="/embed", body={"inputs": list(TEXTS)}, texts=TEXTS),
    Question(path="/embed", body={"inputs": list(TEXTS) * 8}, texts=TEXTS * 8),
    Question(
        path="/vertex",
        body={"instances": [{"inputs": list(TEXTS[:2])}, {"inputs": list(TEXTS[2:])}]},
        texts=TEXTS,
    ),
)


def vectors_of(client: HttpClient) -> dict[str, Vectors]:
    """What the server answers now for each text."""
    reply = client.post("/embed", {"inputs": list(TEXTS)})
    assert reply.status == 200, reply.body
    rows = np.asarray(reply.json(), dtype=np.float32)
    return dict(zip(TEXTS, rows, strict=True))


@dataclass(kw_only=True)
class SwapLoad:
    """Asks from several connections; `versions` are name -> text -> vector."""

    base_url: str
    versions: Mapping[str, Mapping[str, Vectors]]
    num_clients: int = 4
    answers: Counter[str] = field(default_factory=Counter)
    complaints: list[str] = field(default_factory=list)

    @contextmanager
    def running(self) -> Iterator["SwapLoad"]:
        """Ask for as long as the block lasts."""
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._ask, args=(number, stop), daemon=True)
            for number in range(self.num_clients)
        ]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            stop.set()
            for thread in threads:
                thread.join(20)
                assert not thread.is_alive(), "a client still waits for its answer"

    def _ask(self, number: int, stop: threading.Event) -> None:
        with HttpClient(self.base_url) as client:
            while not stop.is_set():
                number += 1
                self._look_at(client, QUESTIONS[number % len(QUESTIONS)])

    def _look_at(self, client: HttpClient, question: Question) -> None:
        try:
            reply = client.post(question.path, question.body)
        except (OSError, HTTPException) as error:
            self.complaints.append(f"{question.path}: {error!r}")
            return
        if reply.status != 200:
            self.complaints.append(f"{question.path}: {reply.status} {reply.body!r}")
            return
        found = [self._version(text, row) for text, row in question.rows(reply.json())]
        if len(set(found)) != 1 or None in found:
            self.complaints.append(f"{question.path}: rows of {found}")
        else:
            self.answers[str(found[0])] += 1

    def _version(self, text: str, row: Sequence[float]) -> str | None:
        for name, vectors in self.versions.items():
            if np.allclose(vectors[text], row, rtol=0.0, atol=TOLERANCE):
                return name
        return None
