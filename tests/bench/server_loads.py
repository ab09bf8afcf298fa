"""What servers are asked when they are compared. Knows nothing of how they are started."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from http_load import Load, drive, offer, request_bytes
from peer_servers import MODEL_NAME, Contestant

WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")
BATCH_TEXTS = 32
RERANK_DOCUMENTS = 100
MEDIAN_WORDS = 40.0
LENGTH_SIGMA = 0.8
MOST_WORDS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests that are sent over and over.

    Attributes:
        is_rerank: they go to a reranker, else to an embedding model.
        bodies: each one JSON object, without the model's name.
        clients: that each wait for their answer; None = requests leave at random times instead.
    """

    name: str
    is_rerank: bool
    bodies: tuple[Mapping[str, object], ...]
    clients: int | None

    def run(self, contestant: Contestant, seconds: float, rate_per_s: float | None) -> Load:
        """Ask one server for so long; `rate_per_s` is of the workload without clients."""
        path = contestant.rerank_path if self.is_rerank else contestant.embeddings_path
        requests = [
            request_bytes(contestant.base_url, path, {"model": MODEL_NAME, **body})
            for body in self.bodies
        ]
        if self.clients is None:
            assert rate_per_s is not None, "an open loop has a rate"
            return offer(contestant.base_url, requests, rate_per_s=rate_per_s, seconds=seconds)
        return drive(contestant.base_url, requests, clients=self.clients, seconds=seconds)


def embedding_workloads() -> tuple[Workload, ...]:
    """Of an embedding model; the last one has no clients and is offered a share of a capacity."""
    short = tuple({"input": text} for text in short_texts(512))
    batches = tuple({"input": _lognormal_texts(number)} for number in range(32))
    return (
        _embedding("short text, 1 client", short, clients=1),
        _embedding("short text, 32 clients", short, clients=32),
        _embedding(f"{BATCH_TEXTS} texts of log-normal length, 4 clients", batches, clients=4),
        _embedding("short text, at random times", short, clients=None),
    )


def _embedding(
    name: str, bodies: tuple[Mapping[str, object], ...], *, clients: int | None
) -> Workload:
    return Workload(name=name, is_rerank=False, bodies=bodies, clients=clients)


def rerank_workload() -> Workload:
    """One query against many documents."""
    queries, documents = short_texts(16), short_texts(16 * RERANK_DOCUMENTS)
    bodies = tuple(
        {"query": query, "documents": documents[number :: len(queries)]}
        for number, query in enumerate(queries)
    )
    return Workload(
        name=f"1 query x {RERANK_DOCUMENTS} documents, 1 client",
        is_rerank=True,
        bodies=bodies,
        clients=1,
    )


def short_texts(count: int) -> list[str]:
    """Five to fifteen words each; all different, so that no cache answers."""
    source = random.Random(7)
    return [
        " ".join([str(number), *source.choices(WORDS, k=source.randint(4, 14))])
        for number in range(count)
    ]


def _lognormal_texts(seed: int) -> Sequence[str]:
    source = random.Random(seed)
    counts = (
        min(MOST_WORDS, max(3, round(MEDIAN_WORDS * source.lognormvariate(0.0, LENGTH_SIGMA))))
        for _ in range(BATCH_TEXTS)
    )
    return [
        " ".join([f"{seed}-{number}", *source.choices(WORDS, k=count)])
        for number, count in enumerate(counts)
    ]
