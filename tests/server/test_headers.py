"""Headers of replies: which stand where, and what they say."""

from collections.abc import Callable

import pytest

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.runtime.state import ServiceState
from loopback import Answer, Client, ClientOf, StartServer

COMPUTE = {
    "x-compute-type",
    "x-compute-time",
    "x-total-time",
    "x-compute-characters",
    "x-compute-tokens",
    "x-tokenization-time",
    "x-queue-time",
    "x-inference-time",
}
VARY = "Accept, Accept-Encoding, Origin"
PAIRS = {"query": "abc", "documents": ["de", "f g"]}
INFERENCE: list[tuple[Kind, str, object, int, int]] = [
    # kind, path, body, characters, tokens
    (Kind.EMBEDDING, "/embed", {"inputs": "a bc"}, 4, 4),
    (Kind.EMBEDDING, "/embed", {"inputs": ["a", [1, 2, 3]]}, 4, 6),
    (Kind.EMBEDDING, "/embed_all", {"inputs": "é"}, 1, 3),
    (Kind.EMBEDDING, "/v1/embeddings", {"input": ["a", "b"]}, 2, 6),
    (Kind.EMBEDDING, "/embeddings", {"input": "a"}, 1, 3),
    (Kind.EMBEDDING, "/", {"inputs": "a"}, 1, 3),
    (Kind.EMBEDDING, "/invocations", {"inputs": "a"}, 1, 3),
    (
        Kind.EMBEDDING,
        "/similarity",
        {"inputs": {"source_sentence": "ab", "sentences": ["c", "d"]}},
        4,
        9,
    ),
    (Kind.EMBEDDING, "/v1/score", {"text_1": "ab", "text_2": ["c", "d"]}, 6, 10),
    (Kind.SPARSE, "/embed_sparse", {"inputs": "a"}, 1, 3),
    (Kind.CLASSIFIER, "/predict", {"inputs": [["ab"], ["c", "d"]]}, 4, 8),
    (Kind.CLASSIFIER, "/v1/classify", {"input": "ab"}, 2, 3),
    (Kind.CLASSIFIER, "/classify", {"input": [1, 2]}, 2, 2),
    (Kind.RERANKER, "/rerank", {"query": "abc", "texts": ["de", "f g"]}, 11, 11),
    (Kind.RERANKER, "/v1/rerank", PAIRS, 11, 11),
    (Kind.RERANKER, "/v2/rerank", PAIRS, 11, 11),
    (Kind.TOKEN_CLASSIFIER, "/predict_tokens", {"inputs": ["ab", "c"]}, 3, 6),
    (
        Kind.DECISION,
        "/v1/systemone",
        {"state": "ab", "questions": {"q": {"type": "noul"}}},
        11,
        4,
    ),
]
Send = Callable[[Client], Answer]


@pytest.mark.parametrize(("kind", "path", "body", "characters", "tokens"), INFERENCE)
def test_costs_of_inference(
    client_of: ClientOf, kind: Kind, path: str, body: object, characters: int, tokens: int
) -> None:
    reply = client_of(kind).post(path, body)
    assert reply.status == 200, reply.body
    headers = reply.headers
    assert set(headers) >= COMPUTE
    assert headers["x-compute-type"] == "cpu+optimized"
    assert headers["x-compute-characters"] == str(characters)
    assert headers["x-compute-tokens"] == str(tokens)
    assert headers["x-compute-time"] == headers["x-total-time"]
    assert int(headers["x-total-time"]) >= 0
    parts = ("x-tokenization-time", "x-queue-time", "x-inference-time")
    assert [headers[name] for name in parts] == ["1", "2", "3"]


PLAIN: dict[str, tuple[Send, int]] = {
    "tokenize": (lambda client: client.post("/tokenize", {"inputs": "a"}), 200),
    "decode": (lambda client: client.post("/decode", {"ids": [1]}), 200),
    "vertex": (lambda client: client.post("/vertex", {"instances": [{"inputs": "a"}]}), 200),
    "info": (lambda client: client.get("/info"), 200),
    "models": (lambda client: client.get("/v1/models"), 200),
    "health": (lambda client: client.get("/health"), 200),
    "ready": (lambda client: client.get("/ready"), 200),
    "metrics": (lambda client: client.get("/metrics"), 200),
    "status": (lambda client: client.get("/status.json"), 200),
    "docs": (lambda client: client.get("/docs"), 200),
    "openapi": (lambda client: client.get("/api-doc/openapi.json"), 200),
    "head": (lambda client: client.request("HEAD", "/info"), 200),
    "preflight": (lambda client: client.request("OPTIONS", "/embed"), 204),
    "syntax": (lambda client: client.post("/embed", b"{"), 400),
    "empty": (lambda client: client.post("/embed", {"inputs": []}), 400),
    "path": (lambda client: client.get("/nope"), 404),
    "model": (lambda client: client.get("/v1/models/nope"), 404),
    "method": (lambda client: client.get("/embed"), 405),
    "media type": (
        lambda client: client.request("POST", "/embed", b"a", {"content-type": "a/b"}),
        415,
    ),
    "value": (lambda client: client.post("/embed", {"inputs": 1}), 422),
    "kind": (lambda client: client.post("/rerank", {"query": "a", "texts": ["b"]}), 424),
}


@pytest.mark.parametrize("name", PLAIN)
def test_replies_that_compute_nothing_say_no_cost(client: Client, name: str) -> None:
    send, status = PLAIN[name]
    reply = send(client)
    assert reply.status == status
    assert not COMPUTE & set(reply.headers)


@pytest.mark.parametrize("name", PLAIN)
def test_every_reply_has_an_id_and_says_what_it_varies_with(client: Client, name: str) -> None:
    headers = PLAIN[name][0](client).headers
    assert len(headers["x-request-id"]) == 32
    assert headers["vary"] == VARY
    assert headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize(
    ("given", "is_kept"),
    [
        ("abc", True),
        ("a" * 128, True),
        ("with space and ~!", True),
        ("a" * 129, False),
        ("é", False),
        ("a\tb", False),
    ],
)
def test_request_ids(client: Client, given: str, is_kept: bool) -> None:
    for path, body in (("/embed", {"inputs": "a"}), ("/embed", {"inputs": []}), ("/nope", {})):
        found = client.post(path, body, x_request_id=given).headers["x-request-id"]
        assert (found == given) == is_kept
        assert is_kept or len(found) == 32


@pytest.mark.parametrize("name", ["x-baseten-customer-request-id", "x-typesafe-request-id"])
def test_ids_of_gateways_are_echoed(client: Client, name: str) -> None:
    for body in (b'{"inputs": "a"}', b'{"inputs": []}'):
        headers = {name: "g1", "content-type": "application/json"}
        reply = client.request("POST", "/embed", body, headers)
        assert reply.headers[name] == "g1"
    assert name not in client.get("/health").headers


def test_refusals_say_when_to_come_back(start_server: StartServer) -> None:
    def seconds(reply: Answer, status: int) -> int:
        assert reply.status == status
        return int(reply.headers["retry-after"])

    with start_server(is_ready=False) as client:
        for path in ("/health", "/ready", "/", "/ping", "/info", "/v1/models"):
            assert 1 <= seconds(client.get(path), 503) <= 60, path
        assert 1 <= seconds(client.post("/embed", {"inputs": "a"}), 503) <= 60
        assert 1 <= seconds(client.post("/tokenize", {"inputs": "a"}), 503) <= 60
    with start_server() as client:
        client.service.state = ServiceState.FAILED
        assert 1 <= seconds(client.get("/health"), 503) <= 60
        assert 1 <= seconds(client.post("/embed", {"inputs": "a"}), 503) <= 60
    with start_server() as client:
        client.service.failure = InferenceError(ErrorKind.OVERLOADED, "overloaded", "no")
        assert 1 <= seconds(client.post("/embed", {"inputs": "a"}), 429) <= 60
        client.call(client.context.lifecycle.begin_drain)
        late = client.post("/embed", {"inputs": "a"})
        assert 1 <= seconds(late, 503) <= 60
        assert late.headers["connection"] == "close"


def test_bodies_of_probes(start_server: StartServer) -> None:
    with start_server(is_ready=False) as client:
        for path in ("/", "/health", "/ping"):
            assert client.get(path).json == {"error": "unhealthy", "error_type": "Unhealthy"}
        assert client.get("/ready").json == {
            "error": "unhealthy",
            "error_type": "Unhealthy",
            "status": "loading",
            "models": {"tiny": "loading"},
        }
        # The rest works from the start.
        for path in ("/metrics", "/docs", "/api-doc/openapi.json", "/status.json"):
            assert client.get(path).status == 200, path
    with start_server() as client:
        for path in ("/", "/health", "/ping"):
            reply = client.get(path)
            assert (reply.status, reply.body) == (200, b"")
        assert client.get("/ready").json == {"status": "ready", "models": {"tiny": "ready"}}


@pytest.mark.parametrize(
    ("send", "status"),
    [
        (lambda client: client.post("/predict", {"inputs": "a"}), 200),
        (lambda client: client.post("/predict", b"{"), 400),
        (lambda client: client.get("/predict"), 405),
    ],
)
def test_predict_is_deprecated(classifier: Client, send: Send, status: int) -> None:
    reply = send(classifier)
    assert reply.status == status
    assert reply.headers["deprecation"] == "@1791590400"
    assert reply.headers["link"] == '</v1/classify>; rel="successor-version"'


def test_exposed_headers_are_named(client: Client) -> None:
    exposed = client.get("/health").headers["access-control-expose-headers"].split(", ")
    assert set(exposed) == COMPUTE | {"x-request-id", "retry-after"}
