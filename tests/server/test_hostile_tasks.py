"""Bodies that no well-meaning client sends to the task routes: each gets one clear refusal."""

import itertools
import json
from collections.abc import Mapping

import pytest

from infinity_v3.artifacts.manifest import Kind
from loopback import Answer, Client, ClientOf, StartServer

Body = Mapping[str, object]
RERANK: Body = {"query": "a", "texts": ["b"]}
DOCUMENTS: Body = {"query": "a", "documents": ["b", {"text": "c"}]}
ROUTES: Mapping[str, tuple[Kind, Body]] = {
    "/rerank": (Kind.RERANKER, RERANK),
    "/v1/rerank": (Kind.RERANKER, DOCUMENTS),
    "/v2/rerank": (Kind.RERANKER, DOCUMENTS),
    "/v1/classify": (Kind.CLASSIFIER, {"input": ["a", "b"]}),
    "/predict": (Kind.CLASSIFIER, {"inputs": [["a"], ["b", "c"]]}),
    "/predict_tokens": (Kind.TOKEN_CLASSIFIER, {"inputs": ["a b"]}),
    "/embed_sparse": (Kind.SPARSE, {"inputs": ["a"]}),
    "/embed_all": (Kind.LATE_INTERACTION, {"inputs": ["a"]}),
    "/v1/embeddings": (Kind.LATE_INTERACTION, {"input": ["a"]}),
    "/similarity": (Kind.EMBEDDING, {"inputs": {"source_sentence": "a", "sentences": ["b"]}}),
}
FIELDS = (
    *("model", "service_tier", "user", "truncate", "truncation_direction"),
    *("inputs", "input", "messages", "query", "texts", "documents", "parameters"),
    *("raw_scores", "return_text", "return_documents", "top_n", "max_tokens_per_doc"),
    *("truncate_prompt_tokens", "rid", "priority", "use_activation", "encoding_format"),
    *("dimensions", "aggregation_strategy", "ignore_labels"),
)
VALUES: tuple[object, ...] = (
    *(None, True, 0, -1, 1.5, 2.0, 10**30, "", "x", "\x00"),
    *([], [[]], [None], [1.5], [-1], [5, 6], [10**10], ["a", 1], [1, "a"], [["a", "b", "c"]]),
    *({}, {"text": 1}, [{"text": "a"}], [{}], {"messages": []}),
    *([{"role": "tool", "content": "a"}], [{"role": "query", "content": "a"}]),
    {"source_sentence": "a", "sentences": []},
)
OPENAI = ("/v1/rerank", "/v2/rerank", "/v1/embeddings")


def message_of(path: str, answer: Answer) -> str:
    """The message of an error in the shape of its route."""
    body = json.loads(answer.body)
    if path in OPENAI:
        assert set(body) == {"error", "message", "type", "code"}
        assert set(body["error"]) == {"message", "type", "param", "code"}
        return str(body["message"])
    if path == "/v1/classify":
        assert (body["object"], body["code"]) == ("error", answer.status)
        return str(body["message"])
    assert set(body) == {"error", "error_type"}
    return str(body["error"])


@pytest.mark.parametrize("path", ROUTES)
def test_any_value_in_any_field_is_answered_or_refused_by_name(
    client_of: ClientOf, path: str
) -> None:
    kind, body = ROUTES[path]
    client = client_of(kind)
    for field, value in itertools.product(FIELDS, VALUES):
        answer = client.post(path, {**body, field: value})
        assert answer.status in {200, 400, 422, 424}, (field, value, answer)
        if answer.status == 422:
            assert f"`{field}" in message_of(path, answer), (field, value, answer.body)


@pytest.mark.parametrize("path", ROUTES)
def test_a_missing_field_is_named(client_of: ClientOf, path: str) -> None:
    kind, body = ROUTES[path]
    for field in body:
        answer = client_of(kind).post(path, {k: v for k, v in body.items() if k != field})
        assert answer.status == 422
        assert f"`{field}`" in message_of(path, answer)


@pytest.mark.parametrize("value", ["x - at `$.query`", "a - at b - at c", " - at "])
def test_a_value_cannot_pass_for_the_path_of_its_field(reranker: Client, value: str) -> None:
    answer = reranker.post("/v1/rerank", {**DOCUMENTS, "truncation_direction": value})
    assert answer.status == 422
    assert json.loads(answer.body)["error"]["param"] == "truncation_direction"
    message = message_of("/v1/rerank", answer)
    assert message.startswith("`truncation_direction`: ")
    assert message.endswith("expected one of Left, left, Right, right")


@pytest.mark.parametrize("value", ["x - at `$.query`", " - at "])
def test_the_name_of_an_unknown_key_cannot_either(classifier: Client, value: str) -> None:
    message = {"role": "user", "content": "a", value: 1}
    answer = classifier.post("/v1/classify", {"messages": [message]})
    assert answer.status == 422
    assert message_of("/v1/classify", answer).startswith("`messages[0]`: ")


@pytest.mark.parametrize("field", ["service_tier", "truncation_direction"])
def test_a_long_value_is_not_sent_back(reranker: Client, field: str) -> None:
    answer = reranker.post("/v2/rerank", {**DOCUMENTS, field: "x" * 1_000_000})
    assert answer.status == 422
    assert len(answer.body) < 2000
    assert "expected one of" in message_of("/v2/rerank", answer)


def test_a_long_name_of_a_model_is_not_sent_back(start_server: StartServer) -> None:
    with start_server(names=("one", "two")) as client:
        answer = client.post("/embed", {"model": "x" * 1_000_000, "inputs": "a"})
    assert answer.status == 404
    assert len(answer.body) < 2000
    assert message_of("/embed", answer).endswith("is not served here; served: one, two")
