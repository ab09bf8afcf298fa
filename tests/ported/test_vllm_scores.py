"""Cases of vllm-project/vllm, tests/entrypoints/pooling, about scores, written for our routes.

Each test names the file that its inputs and expectations come from. A comment that begins with
"Differs" cites what we answer otherwise on purpose.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_case import CLASSIFIER, OPENAI, RANKER, assert_refused, invalid
from ported_servers import Body, cosine, post, send, sigmoid, softmax, vectors
from server_process import ServerProcess

pytestmark = pytest.mark.e2e

TEXT = "This product was excellent and exceeded my expectations"
QUERIES = ["What is the capital of France?", "What is the capital of Germany?"]
ANSWERS = ["The capital of France is Paris.", "The capital of Germany is Berlin."]
DOCUMENTS = [
    "The capital of Brazil is Brasilia.",
    "The capital of France is Paris.",
    "Cross-encoder models are neat",
]
SCORE, CLASSIFY, RERANK = "/v1/score", "/classify", "/rerank"
SCORE_FORMS: Mapping[str, Mapping[str, object]] = {
    "one_to_one": {"queries": QUERIES[0], "documents": ANSWERS[0]},
    "one_to_many": {"queries": QUERIES[0], "documents": ANSWERS},
    "many_to_many": {"queries": QUERIES, "documents": ANSWERS},
    "text_1_text_2": {"text_1": QUERIES, "text_2": ANSWERS},
}
PAIRS: Mapping[str, list[tuple[str, str]]] = {
    "one_to_one": [(QUERIES[0], ANSWERS[0])],
    "one_to_many": [(QUERIES[0], ANSWERS[0]), (QUERIES[0], ANSWERS[1])],
    "many_to_many": list(zip(QUERIES, ANSWERS, strict=True)),
    "text_1_text_2": list(zip(QUERIES, ANSWERS, strict=True)),
}


def classify(server: ServerProcess, **body: object) -> Any:  # noqa: ANN401
    return post(server, CLASSIFY, {"model": CLASSIFIER, **body})


def rerank(server: ServerProcess, **body: object) -> Any:  # noqa: ANN401
    whole = {"model": RANKER, "query": QUERIES[0], "documents": DOCUMENTS, **body}
    return post(server, RERANK, whole)


class TestClassify:
    """classify/test_online.py."""

    def test_text_and_ids(self, several_server: ServerProcess) -> None:
        (tokens,) = post(several_server, "/tokenize", {"model": CLASSIFIER, "inputs": TEXT})
        ids = [token["id"] for token in tokens]
        found = [classify(several_server, input=form) for form in (TEXT, ids)]
        for answer in found:
            assert (answer["object"], answer["model"]) == ("list", CLASSIFIER)
            assert len(answer["data"]) == 1
            assert answer["usage"]["prompt_tokens"] == len(ids)
        by_text, by_ids = (answer["data"][0]["probs"] for answer in found)
        assert by_text == pytest.approx(by_ids, abs=1e-6)
        batches = [classify(several_server, input=[form] * 10) for form in (TEXT, ids)]
        for answer in batches:
            assert [entry["index"] for entry in answer["data"]] == list(range(10))
            assert {entry["num_classes"] for entry in answer["data"]} == {3}
            assert {entry["label"] for entry in answer["data"]} <= {"LABEL_0", "LABEL_1", "LABEL_2"}

    @pytest.mark.parametrize("empty", ["", []])
    def test_empty(self, several_server: ServerProcess, empty: object) -> None:
        body = {"model": CLASSIFIER, "input": empty}
        assert post(several_server, CLASSIFY, body, status=400)["object"] == "error"

    def test_truncate_prompt_tokens(self, several_server: ServerProcess) -> None:
        usage = classify(several_server, input="hello " * 600, truncate_prompt_tokens=5)["usage"]
        assert (usage["prompt_tokens"], usage["total_tokens"]) == (5, 5)
        body = {"model": CLASSIFIER, "input": "test", "truncate_prompt_tokens": 513}
        # Differs, "validation status": 422; there 400.
        refused = post(several_server, CLASSIFY, body, status=422)
        assert "truncate_prompt_tokens" in refused["message"]

    @pytest.mark.parametrize("value", [True, False])
    def test_add_special_tokens(self, several_server: ServerProcess, value: bool) -> None:
        # Differs: keys that we do not know are ignored.
        answer = classify(several_server, input=TEXT, add_special_tokens=value)
        assert answer == {**answer, **{"data": classify(several_server, input=TEXT)["data"]}}

    def test_use_activation(self, several_server: ServerProcess) -> None:
        default, active, raw = (
            classify(several_server, input=TEXT, **option)["data"][0]["probs"]
            for option in ({}, {"use_activation": True}, {"use_activation": False})
        )
        assert default == active
        assert softmax(raw) == pytest.approx(active, abs=1e-6)
        assert raw != pytest.approx(active, abs=1e-2)

    def test_invocations(self, several_server: ServerProcess) -> None:
        body = {"model": CLASSIFIER, "inputs": TEXT}
        # Differs: the path takes the body that the model's kind stands for.
        found = post(several_server, "/invocations", body)
        assert found == post(several_server, "/predict", body)

    def test_other_tasks(self, several_server: ServerProcess) -> None:
        # Differs: 424 where the model cannot; there the routes are gone.
        scored = {"model": CLASSIFIER, "queries": "ping", "documents": "pong"}
        post(several_server, SCORE, scored, status=424)
        ranked = {"model": CLASSIFIER, "query": "ping", "documents": ["pong"]}
        post(several_server, RERANK, ranked, status=424)
        post(several_server, OPENAI, {"model": CLASSIFIER, "input": "ping"}, status=424)


class TestScore:
    """scoring/test_cross_encoder_online.py and scoring/test_bi_encoder_online.py."""

    @pytest.mark.parametrize("form", SCORE_FORMS)
    def test_cross_encoder(self, several_server: ServerProcess, form: str) -> None:
        answer = post(several_server, SCORE, {"model": RANKER, **SCORE_FORMS[form]})
        assert answer["id"].startswith("score-")
        assert [entry["index"] for entry in answer["data"]] == list(range(len(PAIRS[form])))
        for entry, pair in zip(answer["data"], PAIRS[form], strict=True):
            (expected,) = post(several_server, "/predict", {"model": RANKER, "inputs": pair})
            assert entry["score"] == pytest.approx(expected["score"], abs=1e-5)

    @pytest.mark.parametrize("form", SCORE_FORMS)
    def test_bi_encoder(self, minilm_server: ServerProcess, form: str) -> None:
        answer = post(minilm_server, SCORE, SCORE_FORMS[form])
        for entry, pair in zip(answer["data"], PAIRS[form], strict=True):
            left, right = vectors(post(minilm_server, OPENAI, {"input": list(pair)}))
            assert entry["score"] == pytest.approx(cosine(left, right), abs=1e-5)

    @pytest.mark.parametrize("names", [("queries", "items"), ("data_1", "data_2")])
    def test_other_dialects(self, several_server: ServerProcess, names: tuple[str, str]) -> None:
        # Differs: two dialects are enough.
        body = {"model": RANKER, **dict(zip(names, (QUERIES, ANSWERS), strict=True))}
        post(several_server, SCORE, body, status=422)

    def test_counts_that_do_not_match(self, several_server: ServerProcess) -> None:
        body = {"model": RANKER, "queries": QUERIES, "documents": [*ANSWERS, "a"]}
        post(several_server, SCORE, body, status=422)

    def test_length(self, several_server: ServerProcess) -> None:
        body: Body = {"model": RANKER, "queries": QUERIES[0] * 200, "documents": ANSWERS}
        # Differs: too long pairs are cut unless a request forbids it.
        post(several_server, SCORE, body)
        refused = send(several_server, SCORE, {**body, "truncate": False})
        assert_refused(refused, SCORE, invalid("must have less than", code="input_too_long"))
        # Differs, "validation status": 422; there 400.
        beyond = send(several_server, SCORE, {**body, "truncate_prompt_tokens": 513})
        assert_refused(beyond, SCORE, invalid("`truncate_prompt_tokens`"))


class TestRerank:
    """scoring/test_cross_encoder_online.py and score/test_online_rerank.py."""

    @pytest.mark.parametrize("top_n", [None, 2])
    def test_order(self, several_server: ServerProcess, top_n: int | None) -> None:
        answer = rerank(several_server, top_n=top_n)
        scores = [entry["relevance_score"] for entry in answer["results"]]
        assert len(scores) == (top_n or 3)
        assert scores == sorted(scores, reverse=True)
        assert answer["id"].startswith("rerank-")

    def test_length(self, several_server: ServerProcess) -> None:
        # Differs: too long pairs are cut unless a request forbids it.
        assert rerank(several_server, query=QUERIES[0] * 100)["usage"]["total_tokens"] <= 3 * 512
        body = {"model": RANKER, "query": QUERIES[0] * 100, "documents": DOCUMENTS}
        refused = send(several_server, RERANK, {**body, "truncate": False})
        assert_refused(refused, RERANK, invalid("must have less than"))

    def test_invocations(self, several_server: ServerProcess) -> None:
        body = {"model": RANKER, "query": QUERIES[0], "documents": DOCUMENTS}
        ranked, invoked = (post(several_server, path, body) for path in (RERANK, "/invocations"))
        assert ranked.keys() == invoked.keys()
        assert ranked["results"] == invoked["results"]

    def test_activation(self, several_server: ServerProcess) -> None:
        # Differs: the field is called `raw_scores` here.
        active, raw = (
            [entry["relevance_score"] for entry in rerank(several_server, **option)["results"]]
            for option in ({}, {"raw_scores": True})
        )
        # Both come as float32: two roundings below 1.
        assert sigmoid(raw) == pytest.approx(active, abs=2**-24)

    def test_max_tokens_per_doc(self, several_server: ServerProcess) -> None:
        documents = ["The capital of France is Paris. " * 20]
        whole = rerank(several_server, documents=documents)["usage"]["prompt_tokens"]
        for wanted in (10, 15):
            body = {"documents": documents, "max_tokens_per_doc": wanted}
            clipped = rerank(several_server, **body)["usage"]["prompt_tokens"]
            assert clipped < whole
        beside = [*documents, "The capital of Brazil is Brasilia."]
        assert len(rerank(several_server, documents=beside, max_tokens_per_doc=10)["results"]) == 2

    @pytest.mark.parametrize("wrong", [0, -5])
    def test_max_tokens_per_doc_that_is_none(
        self, several_server: ServerProcess, wrong: int
    ) -> None:
        body = {"model": RANKER, "query": "a", "documents": ["b"], "max_tokens_per_doc": wrong}
        # Differs, "validation status": 422; there 400.
        refused = send(several_server, RERANK, body)
        assert_refused(refused, RERANK, invalid("`max_tokens_per_doc`"))

    def test_bi_encoder(self, minilm_server: ServerProcess) -> None:
        # Differs: an embedding model is no re-ranker; /v1/score compares its vectors.
        body = {"query": QUERIES[0], "documents": DOCUMENTS}
        refused = post(minilm_server, RERANK, body, status=424)
        assert "model is not a re-ranker model" in refused["error"]


@pytest.fixture(scope="module")
def tagger_server(tagger_artifact: Path) -> Iterator[ServerProcess]:
    with ServerProcess(tagger_artifact, "--dtype", "float32") as server:
        yield server


def test_token_classify(tagger_server: ServerProcess) -> None:
    """token_classify/test_online.py: the logits of every token; other tasks are refused."""
    (tokens,) = post(tagger_server, "/tokenize", {"inputs": TEXT, "add_special_tokens": False})
    body = {"inputs": TEXT, "raw_scores": True, "ignore_labels": []}
    (rows,) = post(tagger_server, "/predict_tokens", body)
    # Differs: special tokens have no row.
    assert [row["token_id"] for row in rows] == [token["id"] for token in tokens]
    assert {len(row["results"]) for row in rows} == {4}
    for path, field in ((CLASSIFY, "input"), (OPENAI, "input"), ("/embed_all", "inputs")):
        # Differs: 424 where the model cannot; there 400.
        post(tagger_server, path, {field: TEXT}, status=424)
    scores = np.array([list(row["results"].values()) for row in rows])
    assert np.isfinite(scores).all()
