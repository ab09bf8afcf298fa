"""How ported cases ask: one function per server, whatever the client of the case was.

Knows nothing of the suites.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edge_case import WITH_KEY
from server_process import Reply, ServerProcess

Body = Mapping[str, object]
Vectors = NDArray[np.float64]


def post(server: ServerProcess, path: str, body: Body, *, status: int = 200) -> Any:  # noqa: ANN401
    """The decoded answer of a request that has to end with that status."""
    reply = send(server, path, body)
    assert reply.status == status, (reply.status, reply.body[:500])
    return reply.json()


def send(server: ServerProcess, path: str, body: Body) -> Reply:
    """Send a body with the key, which servers without one do not look at."""
    return server.post(path, body, WITH_KEY)


def vectors(answer: Mapping[str, Any]) -> Vectors:
    """Rows of `/v1/embeddings` in the order of their indices."""
    rows = answer["data"]
    assert [row["index"] for row in rows] == list(range(len(rows)))
    return np.array([row["embedding"] for row in rows], dtype=np.float64)


def cosine(left: Sequence[float] | Vectors, right: Sequence[float] | Vectors) -> float:
    """Cosine of two vectors."""
    a, b = np.asarray(left), np.asarray(right)
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def sigmoid(logits: Sequence[float]) -> list[float]:
    """Of each."""
    found: list[float] = (1 / (1 + np.exp(-np.asarray(logits)))).tolist()
    return found


def softmax(logits: Sequence[float]) -> list[float]:
    """Over all."""
    powers = np.exp(np.asarray(logits) - np.max(logits))
    found: list[float] = (powers / powers.sum()).tolist()
    return found
