"""What each route answers on each kind of artifact, over real sockets."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fake_service import LABELS
from infinity_v3.artifacts.manifest import Kind
from loopback import Answer, Client, ClientOf, StartServer

EMBED = {"inputs": "a"}
COMPARE = {"inputs": {"source_sentence": "a", "sentences": ["b"]}}
DECIDE = {"state": "a", "questions": {"q": {"type": "noul"}}}
RANK = {"query": "q", "texts": ["a"]}
ROUTES: dict[str, object] = {
    "/embed": EMBED,
    "/embed_all": EMBED,
    "/embed_sparse": EMBED,
    "/similarity": COMPARE,
    "/v1/embeddings": {"input": "a"},
    "/embeddings": {"input": "a"},
    "/predict": EMBED,
    "/v1/classify": {"input": "a"},
    "/classify": {"input": "a"},
    "/rerank": RANK,
    "/v1/rerank": RANK,
    "/v2/rerank": {"query": "q", "documents": ["a"]},
    "/v1/score": {"text_1": "a", "text_2": "b"},
    "/predict_tokens": EMBED,
    "/v1/systemone": DECIDE,
    "/v1/decide": DECIDE,
}
FINE = {
    Kind.EMBEDDING: {
        *("/embed", "/embed_all", "/similarity", "/v1/embeddings", "/embeddings"),
        "/v1/score",
    },
    Kind.SPARSE: {"/embed_sparse"},
    Kind.LATE_INTERACTION: {"/embed_all", "/v1/embeddings", "/embeddings"},
    Kind.CLASSIFIER: {"/predict", "/v1/classify", "/classify"},
    Kind.RERANKER: {
        *("/predict", "/v1/classify", "/classify"),
        *("/rerank", "/v1/rerank", "/v2/rerank", "/v1/score"),
    },
    Kind.TOKEN_CLASSIFIER: {"/predict_tokens"},
    Kind.DECISION: {"/v1/systemone", "/v1/decide"},
}
NO_EMBEDDING = "Model is not an embedding model"
FRAGMENTS = {
    "/embed_sparse": "Model is not an embedding model with SPLADE pooling",
    "/predict": "Model is not a classifier model",
    "/v1/classify": "Model is not a classifier model",
    "/classify": "Model is not a classifier model",
    "/rerank": "model is not a re-ranker model",
    "/v1/rerank": "model is not a re-ranker model",
    "/v2/rerank": "model is not a re-ranker model",
    "/v1/score": "Model is neither a re-ranker model nor an embedding model",
    "/predict_tokens": "Model is not a token classification model",
    "/v1/systemone": "Model is not a decision model",
    "/v1/decide": "Model is not a decision model",
}
CASES = [(kind, path) for kind in FINE for path in ROUTES]


DOCUMENT = Path(__file__).parents[2] / "docs" / "http-api.md"
_CURL = re.compile(r"^curl localhost:3000(?P<path>/\S+) .*?-d '(?P<body>[^']*)'", re.M | re.S)


def message_of(answer: Answer) -> str:
    reply: Any = answer.json
    if "detail" in reply:
        return str(reply["detail"]["message"])
    return str(reply["message"] if "message" in reply else reply["error"])


@pytest.mark.parametrize(("kind", "path"), CASES, ids=[f"{k.value}{p}" for k, p in CASES])
def test_a_route_on_another_kind_is_a_424(client_of: ClientOf, kind: Kind, path: str) -> None:
    client = client_of(kind)
    answer = client.post(path, ROUTES[path])
    if path in FINE[kind]:
        assert answer.status == 200, answer.body
        return
    assert answer.status == 424, answer.body
    is_sparse = kind is Kind.SPARSE and path == "/embed_all"
    fragment = "not available for SPLADE" if is_sparse else FRAGMENTS.get(path, NO_EMBEDDING)
    assert fragment in message_of(answer)


@pytest.mark.parametrize("path", ["/", "/invocations"])
@pytest.mark.parametrize(
    ("kind", "twin"),
    [
        (Kind.EMBEDDING, "/embed"),
        (Kind.SPARSE, "/embed_sparse"),
        (Kind.LATE_INTERACTION, "/embed_all"),
        (Kind.CLASSIFIER, "/predict"),
        (Kind.RERANKER, "/rerank"),
        (Kind.TOKEN_CLASSIFIER, "/predict_tokens"),
    ],
)
def test_the_kind_decides_what_a_bare_path_means(
    client_of: ClientOf, kind: Kind, twin: str, path: str
) -> None:
    client = client_of(kind)
    answer = client.post(path, ROUTES[twin])
    assert answer.status == 200, answer.body
    assert answer.json == client.post(twin, ROUTES[twin]).json
    assert client.pack(path, ROUTES[twin]).msgpack == client.pack(twin, ROUTES[twin]).msgpack
    refused = client.post(path, {})
    assert refused.status == 422
    assert refused.json["error_type"] == "Validation"
    assert client.post(path, b"{").json["error_type"] == "Malformed"


def test_a_bare_path_answers_documents_too(reranker: Client) -> None:
    reply = reranker.post("/", {"query": "q", "documents": ["a"]}).json
    assert (reply["object"], reply["meta"]["api_version"]["version"]) == ("rerank", "1")


def test_the_task_of_the_environment_means_similarity(start_server: StartServer) -> None:
    with start_server(task="sentence-similarity") as client:
        assert len(client.post("/", COMPARE).json) == 1
        empty = client.post("/invocations", {"inputs": {"source_sentence": "a", "sentences": []}})
    assert empty.status == 400
    assert "`inputs.sentences` cannot be empty" in empty.json["error"]
    with start_server(task="feature-extraction") as client:
        assert client.post("/", EMBED).status == 200


def test_a_bare_path_is_routed_by_the_model(start_server: StartServer) -> None:
    with start_server(("one", "two")) as client:
        assert client.post("/", EMBED).status == 422
        unknown = client.post("/", {**EMBED, "model": "three"})
        assert client.post("/", {**EMBED, "model": "two"}).status == 200
        odd_bodies: tuple[object, ...] = (None, 5, [], {"model": 5})
        for odd in odd_bodies:
            assert client.post("/", odd).status == 422
    assert (unknown.status, unknown.json["error_type"]) == (404, "NotFound")


@pytest.mark.parametrize(
    ("path", "body", "fragment"),
    [
        ("/rerank", {"query": "q", "texts": []}, "`texts` cannot be empty"),
        ("/rerank", {"query": "q", "documents": []}, "`documents` cannot be empty"),
        ("/predict", {"inputs": []}, "`inputs` cannot be empty"),
        ("/embed_sparse", {"inputs": []}, "`inputs` cannot be empty"),
        ("/predict_tokens", {"inputs": []}, "`inputs` cannot be empty"),
        ("/v1/classify", {"input": []}, "`input` cannot be empty"),
    ],
)
def test_an_empty_list_is_told_before_the_kind(
    client: Client, path: str, body: object, fragment: str
) -> None:
    answer = client.post(path, body)
    assert answer.status == 400
    assert fragment in message_of(answer)


@pytest.mark.parametrize("body", [{"query": "q"}, {"query": "q", "texts": [], "documents": []}])
def test_the_dialect_is_checked_before_the_kind(client: Client, body: object) -> None:
    assert client.post("/rerank", body).status == 422


def test_the_kind_is_told_before_the_batch_size(client: Client) -> None:
    answer = client.post("/rerank", {"query": "q", "texts": ["a"] * 2000})
    assert answer.status == 424


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.EMBEDDING, {"embedding": {"pooling": "last_token"}}),
        (Kind.SPARSE, {"embedding": {"pooling": "splade"}}),
        (Kind.LATE_INTERACTION, {"embedding": {"pooling": "none"}}),
        *(
            (
                kind,
                {
                    kind.value: {
                        "id2label": {str(i): label for i, label in enumerate(labels)},
                        "label2id": {label: i for i, label in enumerate(labels)},
                    }
                },
            )
            for kind, labels in LABELS.items()
        ),
    ],
)
def test_info_tells_the_kind(client_of: ClientOf, kind: Kind, expected: object) -> None:
    client = client_of(kind)
    assert client.get("/info").json["model_type"] == expected
    assert client.get("/info", accept="application/msgpack").msgpack["model_type"] == expected


def test_models_list_what_they_can_do(client_of: ClientOf) -> None:
    (entry,) = client_of(Kind.RERANKER).get("/v1/models").json["data"]
    assert entry["capabilities"] == ["classify", "rerank", "score", "tokenize"]


def test_scores_are_counted_as_predictions(start_server: StartServer) -> None:
    with start_server(kind=Kind.RERANKER) as client:
        client.post("/rerank", {"query": "q", "texts": ["a", "b"]})
        client.post("/predict", {"inputs": "a"})
        client.post("/embed", EMBED)
        text = client.get("/metrics").body.decode()
    for line in (
        'te_request_count{method="single"} 2',
        'te_request_count{method="batch"} 1',
        'te_request_success{method="single"} 1',
        'te_request_failure{err="model_type"} 1',
        "te_predict_count 3",
        "te_predict_success 3",
        "te_predict_duration_count 3",
        "te_predict_inference_duration_count 3",
        "te_embed_count 1",
        "te_embed_success 0",
        'infinity_rejected_total{model="tiny",reason="unsupported_task"} 1',
    ):
        assert f"\n{line}\n" in text, line


def test_engine_failures_keep_the_shape_of_the_path(start_server: StartServer) -> None:
    from infinity_v3.runtime.errors import ErrorKind, InferenceError

    with start_server(kind=Kind.RERANKER, model={"max_concurrent_requests": 1}) as client:
        client.service.failure = InferenceError(ErrorKind.BACKEND, "engine_error", "it broke")
        failed = client.post("/v1/classify", {"input": "a"}).json
        assert (failed["type"], failed["code"]) == ("server_error", 424)
        assert client.post("/rerank", RANK).json["error_type"] == "Backend"
        client.service.failure = None
        client.service.admission.take_slot()
        full = client.post("/classify", {"input": "a"})
        client.service.admission.release_slot()
    assert (full.status, full.json["type"]) == (429, "overloaded_error")
    assert int(full.headers["retry-after"]) >= 1


def test_a_missing_key_is_told_in_the_shape_of_the_path(start_server: StartServer) -> None:
    with start_server(kind=Kind.RERANKER, api_key="k") as client:
        classify = client.post("/v1/classify", {"input": "a"})
        rank = client.post("/v2/rerank", RANK)
        predict = client.post("/predict", EMBED)
    assert [answer.status for answer in (classify, rank, predict)] == [401, 401, 401]
    assert classify.json["object"] == "error"
    assert rank.json["error"]["code"] == "invalid_api_key"
    assert predict.headers["deprecation"] == "@1791590400"


def test_the_requests_of_the_document_are_answered(client_of: ClientOf) -> None:
    examples = list(_CURL.finditer(DOCUMENT.read_text()))
    assert len(examples) >= 5
    for example in examples:
        path = example["path"]
        kind = next((kind for kind, paths in FINE.items() if path in paths), Kind.EMBEDDING)
        client = client_of(kind)
        facts = client.service.info
        client.service.info = replace(facts, has_chat_template='"messages"' in example["body"])
        answer = client.post(path, example["body"].encode())
        client.service.info = facts
        assert answer.status == 200, (example["path"], answer.body)
