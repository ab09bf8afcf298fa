"""The servers that published clients talk to, and the direct calls that they are compared with.

Standard library only: the clients' own environments hold nothing of the product. Knows nothing of
any client.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

Json = Any
"""A decoded document whose shape the test knows."""

KEY = "the-right-key"
NAME = "all-MiniLM-L6-v2"
TEXTS = (
    "What is Deep Learning?",
    "Deep Learning is...",
    "naïve café",
    "深度学习",
    "the dog " * 300,
)
QUERY = "where does the quick fox sleep"
DOCUMENTS = (
    "the quick brown fox",
    "Der Hund und die Katze",
    "the dog and the cat",
    "one two three four five six",
)


ServerUrl = Callable[[str], str]
"""Base URL of the server of a name, see `SERVERS`."""

SERVERS: Mapping[str, str] = {
    "embedding": "all-MiniLM-L6-v2; no key is asked for",
    "keyed": "the same with an API key",
    "similarity": "the same with TASK=sentence-similarity",
    "single": "the same with one request slot",
    "prompts": "a tiny embedding model with prompts, the default one is query",
    "reranker": "a tiny cross-encoder",
    "keyed_reranker": "the same with an API key",
    "classifier": "three labels",
    "token_classifier": "persons and places",
    "sparse": "SPLADE",
    "late_interaction": "ColBERT",
    "decision": "a tiny Laya model",
    "keyed_decision": "the same with an API key",
}


def ask(url: str, body: object = None, *, key: str | None = None) -> Json:
    """Call a route without any client and give the document of its answer, whatever the status."""
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers=headers)
    try:
        with _opener().open(request, timeout=120) as reply:
            return json.loads(reply.read())
    except urllib.error.HTTPError as error:
        with error:
            return json.loads(error.read())


def series(url: str, prefix: str) -> float:
    """Sum of a server's metric series whose text begins like this; at least one does."""
    with _opener().open(f"{url}/metrics", timeout=30) as reply:
        lines = reply.read().decode().splitlines()
    values = [float(line.rpartition(" ")[2]) for line in lines if line.startswith(prefix)]
    assert values, f"no series {prefix!r}"
    return sum(values)


def relevance(url: str, *, raw_scores: bool = False, key: str | None = None) -> Mapping[int, float]:
    """What `/rerank` answers to QUERY and DOCUMENTS: score by index, best first."""
    body = {"query": QUERY, "texts": DOCUMENTS, "raw_scores": raw_scores}
    return {row["index"]: row["score"] for row in ask(f"{url}/rerank", body, key=key)}


@contextmanager
def counted(url: str, prefix: str) -> Iterator[None]:
    """Check that a metric of a server grew inside the block."""
    before = series(url, prefix)
    yield
    assert series(url, prefix) > before


def _opener() -> urllib.request.OpenerDirector:
    # No proxy of the environment stands between a test and its server.
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))
