"""Routes over the real inference service with an engine without a model: where both meet."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fake_engine import FakeEngine, pooled
from infinity_v3.artifacts.manifest import Heads, Kind, ScoreActivation
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.outputs import MAIN_OUTPUTS
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.server.float32 import shortest
from loopback import Answer, ClientOf, running_kinds
from tiny_models import END, MAX_INPUT_TOKENS, START, fake_model

LABELS = {
    Kind.RERANKER: ("LABEL_0",),
    Kind.CLASSIFIER: ("bad", "so-so", "good"),
    Kind.TOKEN_CLASSIFIER: ("O", "B-X", "I-X"),
}
ACTIVATIONS = {Kind.RERANKER: ScoreActivation.SIGMOID, Kind.CLASSIFIER: ScoreActivation.SOFTMAX}
LONG = "w5 " * MAX_INPUT_TOKENS
BROKEN = 99


def _make(kind: Kind) -> LoadedModel:
    labels = LABELS.get(kind, ())
    outputs = (MAIN_OUTPUTS[kind], "hidden") if kind is Kind.EMBEDDING else (MAIN_OUTPUTS[kind],)
    engine = FakeEngine(outputs=outputs, width=len(labels) or 8)
    engine.non_finite_ids = {BROKEN}
    heads = Heads(labels=labels, activation=ACTIVATIONS.get(kind))
    return fake_model(engine, kind=kind, heads=heads, prompts=PromptTable(named={"query": "w7 "}))


@pytest.fixture(scope="module")
def real() -> Iterator[ClientOf]:
    with running_kinds(_make) as client_of:
        yield client_of


def message_of(answer: Answer) -> str:
    reply: Any = answer.json
    return str(reply["message"] if "message" in reply else reply["error"])


def logits(*ids: int, count: int) -> list[float]:
    return [float(value) for value in pooled((START, *ids, END))[:count]]


def test_rerank(real: ClientOf) -> None:
    client = real(Kind.RERANKER)
    answer = client.post("/rerank", {"query": "w5", "texts": ["w6", "w8", "w6"]})
    assert answer.status == 200, answer.body
    scores = {entry["index"]: entry["score"] for entry in answer.json}
    ranking = [entry["index"] for entry in answer.json]
    assert scores[0] == scores[2]
    assert ranking.index(2) == ranking.index(0) + 1
    raw = client.post(
        "/v1/rerank", {"query": "w5", "documents": ["w6", {"text": "w8"}], "raw_scores": True}
    ).json
    for entry in raw["results"]:
        ids = (5, END, 6 if entry["index"] == 0 else 8)
        assert entry["relevance_score"] == shortest(logits(*ids, count=1))[0]
    assert raw["usage"] == {"prompt_tokens": 10, "total_tokens": 10}


def test_rerank_refusals_name_document_and_query(real: ClientOf) -> None:
    client = real(Kind.RERANKER)
    both_empty = client.post("/rerank", {"query": "", "texts": ["w5", ""]})
    assert (both_empty.status, "(item 1)" in message_of(both_empty)) == (400, True)
    surrogate = client.post("/v2/rerank", {"query": "\ud800", "documents": ["w5"]})
    assert surrogate.status == 422
    assert "`query`" in message_of(surrogate)
    assert surrogate.json["error"]["param"] == "query"
    prompt = client.post("/rerank", {"query": "w5", "texts": ["w6"], "prompt_name": "query"})
    assert prompt.status == 422
    assert "`prompt_name` cannot be set with dual inputs" in message_of(prompt)
    long = {"query": "w5", "documents": ["w5", LONG], "truncate": False}
    refused = client.post("/v1/rerank", long)
    assert refused.json["error"]["code"] == "input_too_long"
    assert message_of(refused).endswith("(item 1)")
    assert client.post("/v1/rerank", {**long, "max_tokens_per_doc": 4}).status == 200


def test_predict_and_classify(real: ClientOf) -> None:
    client = real(Kind.CLASSIFIER)
    raw = logits(5, 6, count=3)
    best = LABELS[Kind.CLASSIFIER][int(np.argmax(raw))]
    predicted = client.post("/predict", {"inputs": "w5 w6"}).json
    assert predicted[0]["label"] == best
    assert [entry["score"] for entry in predicted] == sorted(
        (entry["score"] for entry in predicted), reverse=True
    )
    assert sum(entry["score"] for entry in predicted) == pytest.approx(1.0, abs=1e-12)
    reply = client.post("/v1/classify", {"input": "w5 w6", "use_activation": False}).json
    assert reply["data"][0]["probs"] == shortest(raw)
    assert reply["data"][0]["label"] == best
    pair = client.post("/predict", {"inputs": ["w5", "w6"], "raw_scores": True}).json
    scores = {entry["label"]: entry["score"] for entry in pair}
    assert [scores[label] for label in LABELS[Kind.CLASSIFIER]] == shortest(
        logits(5, END, 6, count=3)
    )


@pytest.mark.parametrize(
    ("kind", "path", "body"),
    [
        (Kind.EMBEDDING, "/v1/embeddings", {"input": ["w5", "w5 w6 w7"]}),
        (Kind.RERANKER, "/v1/rerank", {"query": "w5", "documents": ["", "w6 w7"]}),
        (Kind.RERANKER, "/rerank", {"query": "w5", "documents": ["", "w6 w7"]}),
        (Kind.CLASSIFIER, "/v1/classify", {"input": ["w5", "w5 w6 w7"]}),
    ],
)
def test_a_length_to_cut_at_does_not_cut_where_that_is_forbidden(
    real: ClientOf, kind: Kind, path: str, body: dict[str, object]
) -> None:
    client = real(kind)
    for length in (4, -1):
        limit = MAX_INPUT_TOKENS if length == -1 else length
        asked = {**body, "truncate_prompt_tokens": length}
        if length == -1:
            asked |= {"documents": ["", LONG]} if kind is Kind.RERANKER else {"input": ["w5", LONG]}
        assert client.post(path, asked).status == 200
        assert client.post(path, {**asked, "truncate": True}).status == 200
        refused = client.post(path, {**asked, "truncate": False})
        assert refused.status == 422, refused.body
        message = message_of(refused)
        assert f"must have less than {limit} tokens" in message
        assert "`truncate_prompt_tokens`" in message
        assert "`truncate` is false" in message
        assert message.endswith("(item 1)")


def test_a_length_to_cut_at_takes_what_fits_where_cutting_is_forbidden(real: ClientOf) -> None:
    body = {"input": "w5 w6", "truncate": False, "truncate_prompt_tokens": 4}
    assert real(Kind.EMBEDDING).post("/v1/embeddings", body).status == 200
    without = real(Kind.EMBEDDING).post("/v1/embeddings", {"input": LONG, "truncate": False})
    assert without.status == 422
    assert "truncate_prompt_tokens" not in message_of(without)


def test_classify_refuses_blanks_in_their_turn(real: ClientOf) -> None:
    client = real(Kind.CLASSIFIER)
    for body, place in (({"input": "  "}, "empty"), ({"input": ["w5", " \n"]}, "(item 1)")):
        answer = client.post("/v1/classify", body)
        assert answer.status == 400
        assert place in message_of(answer)
    first = client.post("/v1/classify", {"input": ["\ud800", " "]})
    assert (first.status, "(item 0)" in message_of(first)) == (422, True)
    assert "`input`" in message_of(first)


def test_one_label(real: ClientOf) -> None:
    client = real(Kind.RERANKER)
    (logit,) = logits(5, count=1)
    assert client.post("/v1/classify", {"input": "w5"}).json["data"][0]["probs"] == [1.0]
    (entry,) = client.post("/predict", {"inputs": "w5"}).json
    assert entry["score"] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-15)


def test_numbers_that_are_not_finite_fail_their_request_only(real: ClientOf) -> None:
    client = real(Kind.CLASSIFIER)
    answer = client.post("/predict", {"inputs": [["w5"], [f"w{BROKEN}"]]})
    assert answer.status == 424
    assert "non-finite" in message_of(answer)
    assert client.post("/predict", {"inputs": "w5"}).status == 200


def test_tokens(real: ClientOf) -> None:
    client = real(Kind.TOKEN_CLASSIFIER)
    body = {"inputs": "w5  w6", "ignore_labels": []}
    answer = client.post("/predict_tokens", body)
    assert answer.status == 200, answer.body
    (row,) = answer.json
    found = [(entry["token_id"], entry["start"], entry["end"]) for entry in row]
    assert found == [(5, 0, 2), (6, 4, 6)]
    (row,) = client.post("/predict_tokens", {**body, "raw_scores": True}).json
    assert set(row[0]["results"]) == set(LABELS[Kind.TOKEN_CLASSIFIER])
    grouped = client.post("/predict_tokens", {**body, "aggregation_strategy": "simple"}).json[0]
    assert all(entry["token_id"] == 0 for entry in grouped)
    assert all(entry["token"] == "w5  w6"[entry["start"] : entry["end"]] for entry in grouped)


def test_sparse(real: ClientOf) -> None:
    client = real(Kind.SPARSE)
    raw = pooled((START, 5, END))
    (row,) = client.post("/embed_sparse", {"inputs": "w5"}).json
    assert [entry["index"] for entry in row] == np.flatnonzero(raw > 0).tolist()
    values = np.array([entry["value"] for entry in row], dtype=np.float32)
    assert values.tobytes() == raw[raw > 0].tobytes()


def test_similarity(real: ClientOf) -> None:
    client = real(Kind.EMBEDDING)
    body = {"inputs": {"source_sentence": "w5", "sentences": ["w6 w8", "w5"]}}
    first, second = client.post("/similarity", body).json
    rows = [pooled((START, *ids, END)).astype(np.float64) for ids in ((5,), (6, 8))]
    expected = rows[0] @ rows[1] / np.linalg.norm(rows[0]) / np.linalg.norm(rows[1])
    assert first == pytest.approx(expected, abs=1e-12)
    assert second == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize(
    ("source", "sentences", "status", "place"),
    [
        ("", ["w5"], 400, "(inputs.source_sentence)"),
        ("\ud800", ["w5"], 422, "(inputs.source_sentence)"),
        (LONG, ["w5"], 422, "(inputs.source_sentence)"),
        ("w5", ["w5", ""], 400, "(item 1)"),
        ("w5", ["\ud800"], 422, "(item 0)"),
        ("w5", ["w5", LONG], 422, "(item 1)"),
    ],
)
def test_similarity_names_the_text_at_fault(
    real: ClientOf, source: str, sentences: list[str], status: int, place: str
) -> None:
    inputs = {"source_sentence": source, "sentences": sentences}
    body = {"inputs": inputs, "parameters": {"truncate": False}}
    answer = real(Kind.EMBEDDING).post("/similarity", body)
    assert answer.status == status, answer.body
    assert message_of(answer).endswith(place)


def test_late_interaction(real: ClientOf) -> None:
    client = real(Kind.LATE_INTERACTION)
    (matrix,) = client.post("/embed_all", {"inputs": "w5 w6"}).json
    reply = client.post("/v1/embeddings", {"input": "w5 w6"}).json
    assert reply["data"][0]["embedding"] == matrix
    answer = client.post("/embed", {"inputs": "w5"})
    assert answer.status == 424
    assert "/embed_all" in message_of(answer)
