"""What a load run sends and what the right answers are: texts, bodies, Poisson arrival times.

Knows nothing of connections, processes or servers.
"""

import base64
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
from numpy.typing import NDArray

JSON = "application/json"
MSGPACK = "application/msgpack"
VALUE_ATOL = 1e-4
"""Between a float32 engine and the reference library, per component of a unit vector."""

_WORDS = ("river", "window", "seven", "quietly", "paper", "engine", "of", "the", "runs", "blue")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadRequest:
    """One request of the mix, ready to be sent.

    Attributes:
        texts: positions of its texts among all texts, in order.
        form: how its answer is to be read: json, base64 or msgpack.
    """

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...]
    texts: tuple[int, ...]
    form: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadMix:
    """Requests to choose from, and the right vector of every text.

    Attributes:
        references: (texts, width) float32 unit vectors.
    """

    requests: tuple[LoadRequest, ...]
    references: NDArray[np.float32]

    def is_right(self, request: LoadRequest, body: bytes) -> bool:
        """Whether a 200 holds the vectors of its own texts, in their order, and nothing else."""
        try:
            vectors = np.asarray(_READERS[request.form](body), dtype=np.float32)
        except (ValueError, KeyError, TypeError, msgspec.DecodeError):
            return False
        expected = self.references[list(request.texts)]
        if vectors.shape != expected.shape:
            return False
        return bool(np.abs(vectors - expected).max() <= VALUE_ATOL)


def make_texts(seed: int, count: int) -> list[str]:
    """Texts of three to ninety words; most are short, as queries are."""
    choice = random.Random(seed)
    lengths = [min(90, 3 + int(choice.expovariate(1 / 14))) for _ in range(count)]
    return [f"{index} " + " ".join(choice.choices(_WORDS, k=n)) for index, n in enumerate(lengths)]


def make_mix(texts: Sequence[str], references: NDArray[np.float32], seed: int) -> LoadMix:
    """Single texts and small batches in every form of request."""
    choice = random.Random(seed)
    requests = []
    for index in range(4 * len(texts)):
        count = choice.choice((1, 1, 1, 1, 2, 4))
        chosen = tuple(choice.sample(range(len(texts)), count))
        requests.append(_MAKERS[index % len(_MAKERS)]([texts[i] for i in chosen], chosen))
    return LoadMix(requests=tuple(requests), references=references)


def poisson_times(seed: int, *, rate_per_s: float, duration_s: float) -> list[float]:
    """Arrival times in seconds from the start."""
    choice = random.Random(seed)
    times, now = [], 0.0
    while (now := now + choice.expovariate(rate_per_s)) < duration_s:
        times.append(now)
    return times


def _json_request(texts: Sequence[str], chosen: tuple[int, ...]) -> LoadRequest:
    body = json.dumps({"inputs": texts}).encode()
    return LoadRequest(
        path="/embed", body=body, headers=_types(JSON, JSON), texts=chosen, form="json"
    )


def _base64_request(texts: Sequence[str], chosen: tuple[int, ...]) -> LoadRequest:
    body = json.dumps({"input": texts, "encoding_format": "base64"}).encode()
    return LoadRequest(
        path="/v1/embeddings", body=body, headers=_types(JSON, JSON), texts=chosen, form="base64"
    )


def _msgpack_request(texts: Sequence[str], chosen: tuple[int, ...]) -> LoadRequest:
    body = msgspec.msgpack.encode({"inputs": texts})
    return LoadRequest(
        path="/embed", body=body, headers=_types(MSGPACK, MSGPACK), texts=chosen, form="msgpack"
    )


def _types(sent: str, wanted: str) -> tuple[tuple[str, str], ...]:
    return (("content-type", sent), ("accept", wanted))


_MAKERS = (_json_request, _base64_request, _msgpack_request)


def _read_base64(body: bytes) -> object:
    entries = json.loads(body)["data"]
    rows = sorted(entries, key=lambda entry: entry["index"])
    return [np.frombuffer(base64.b64decode(row["embedding"]), dtype="<f4") for row in rows]


_READERS: Mapping[str, Callable[[bytes], object]] = {
    "json": json.loads,
    "base64": _read_base64,
    "msgpack": msgspec.msgpack.decode,
}
