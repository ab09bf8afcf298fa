"""What the rerank routes answer, over real sockets."""

import re

import pytest

from fake_service import activated, logits_of
from infinity_v3.runtime.requests import RankRequest, ScoreForm, TextPair
from infinity_v3.server.float32 import shortest
from loopback import Client

PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")


def logit(query: str, document: str) -> float:
    return logits_of(TextPair(query=query, document=document), 1)[0]


def score(query: str, document: str) -> float:
    return activated([logit(query, document)], ScoreForm.NATIVE, is_single=True)[0]


def ranked(query: str, texts: list[str]) -> list[int]:
    return sorted(range(len(texts)), key=lambda index: (-logit(query, texts[index]), index))


@pytest.mark.parametrize("path", PATHS)
def test_texts_give_a_bare_list(reranker: Client, path: str) -> None:
    texts = ["x", "y", "x"]
    answer = reranker.post(path, {"query": "q", "texts": texts})
    assert answer.status == 200, answer.body
    order = ranked("q", texts)
    assert answer.json == [{"index": i, "score": score("q", texts[i])} for i in order]
    assert order.index(0) < order.index(2)
    assert reranker.pack(path, {"query": "q", "texts": texts}).msgpack == answer.json


@pytest.mark.parametrize("path", PATHS)
def test_documents_give_an_object(reranker: Client, path: str) -> None:
    texts = ["x", "y z", "x"]
    body = {
        "query": "q",
        "documents": ["x", {"text": "y z", "id": 7}, "x"],
        "return_documents": True,
        "model": "anything",
    }
    answer = reranker.post(path, body)
    assert answer.status == 200, answer.body
    reply = answer.json
    assert re.fullmatch("rerank-[0-9a-f]{32}", reply.pop("id"))
    assert reply.pop("created") > 1_700_000_000
    assert reply == {
        "object": "rerank",
        "model": "tiny",
        "results": [
            {"index": i, "relevance_score": score("q", texts[i]), "document": {"text": texts[i]}}
            for i in ranked("q", texts)
        ],
        "usage": {"prompt_tokens": 16, "total_tokens": 16},
        "meta": {"api_version": {"version": "2" if path == "/v2/rerank" else "1"}},
    }
    assert reranker.pack(path, body).msgpack["results"] == reply["results"]


def test_texts_come_back_only_when_asked_for(reranker: Client) -> None:
    body = {"query": "q", "texts": ["a", "b"]}
    assert all("text" not in entry for entry in reranker.post("/rerank", body).json)
    answer = reranker.post("/rerank", {**body, "return_text": True, "return_documents": True})
    assert {entry["index"]: entry["text"] for entry in answer.json} == {0: "a", 1: "b"}
    documents = {"query": "q", "documents": ["a"], "return_text": True}
    assert "document" not in reranker.post("/v1/rerank", documents).json["results"][0]


def test_raw_scores_are_the_logits(reranker: Client) -> None:
    texts = ["a", "b", "c"]
    body = {"query": "q", "texts": texts, "raw_scores": True}
    values = [logit("q", texts[i]) for i in ranked("q", texts)]
    answer = reranker.post("/rerank", body)
    assert [entry["score"] for entry in answer.json] == shortest(values)
    packed = reranker.pack("/rerank", body)
    assert [entry["score"] for entry in packed.msgpack] == values
    assert packed.body.count(b"\xa5score\xca") == 3


@pytest.mark.parametrize(("top_n", "count"), [(2, 2), (99, 3), (None, 3)])
def test_top_n(reranker: Client, top_n: int | None, count: int) -> None:
    body = {"query": "q", "documents": ["a", "b", "c"], "top_n": top_n}
    results = reranker.post("/v1/rerank", body).json["results"]
    assert [entry["index"] for entry in results] == ranked("q", ["a", "b", "c"])[:count]
    texts = {"query": "q", "texts": ["a", "b", "c"], "top_n": top_n}
    assert len(reranker.post("/rerank", texts).json) == count


def test_an_empty_query_is_allowed(reranker: Client) -> None:
    assert reranker.post("/rerank", {"query": "", "texts": ["a"]}).status == 200


@pytest.mark.parametrize(
    ("more", "status", "code", "fragment"),
    [
        ({}, 422, "invalid_value", "exactly one of `texts` and `documents`"),
        ({"texts": ["a"], "documents": ["a"]}, 422, "invalid_value", "exactly one of"),
        ({"texts": []}, 400, "empty_input", "`texts` cannot be empty"),
        ({"documents": []}, 400, "empty_input", "`documents` cannot be empty"),
        ({"texts": None}, 422, "invalid_value", "`texts`"),
        ({"texts": "a"}, 422, "invalid_value", "`texts`"),
        ({"texts": [1]}, 422, "invalid_value", "`texts[0]`"),
        ({"texts": [{"text": "a"}]}, 422, "invalid_value", "`texts[0]`"),
        ({"documents": [["a"]]}, 422, "invalid_value", "`documents[0]`"),
        ({"documents": [{"title": "a"}]}, 422, "invalid_value", "documents[0]"),
        ({"documents": ["a"], "top_n": 0}, 422, "invalid_value", "`top_n`"),
        ({"texts": ["a"], "top_n": -1}, 422, "invalid_value", "`top_n`"),
        ({"texts": ["a"], "top_n": True}, 422, "invalid_value", "`top_n`"),
        ({"documents": ["a"], "max_tokens_per_doc": 0}, 422, "invalid_value", "max_tokens_per_doc"),
        ({"texts": ["a"], "raw_scores": None}, 422, "invalid_value", "`raw_scores`"),
        ({"texts": ["a"], "return_text": None}, 422, "invalid_value", "`return_text`"),
        ({"texts": ["a"], "truncation_direction": "up"}, 422, "invalid_value", "Left, left"),
        ({"documents": ["a"], "truncate_prompt_tokens": 0}, 422, "invalid_value", "-1 or 1 to 16"),
        ({"documents": ["a"], "truncate_prompt_tokens": 17}, 422, "invalid_value", "Given: 17"),
        ({"documents": ["a"] * 1025}, 422, "batch_too_large", "batch size 1025"),
        ({"query": "", "texts": ["a", ""]}, 400, "empty_input", "cannot be empty (item 1)"),
        ({"query": "", "documents": [""]}, 400, "empty_input", "cannot be empty (item 0)"),
        ({"query": None, "texts": ["a"]}, 422, "invalid_value", "`query`"),
        ({"documents": ["a", "\ud800"]}, 422, "invalid_value", "lone surrogate"),
    ],
)
def test_refusals_in_both_shapes(
    reranker: Client, more: dict[str, object], status: int, code: str, fragment: str
) -> None:
    before = reranker.service.num_computed
    body = {"query": "q", **more}
    tei = reranker.post("/rerank", body)
    assert tei.status == status, tei.body
    assert fragment in tei.json["error"]
    openai = reranker.post("/v1/rerank", body)
    assert (openai.status, openai.json["error"]["code"]) == (status, code)
    assert openai.json["message"] == tei.json["error"]
    assert reranker.service.num_computed == before


def test_the_query_is_required(reranker: Client) -> None:
    answer = reranker.post("/rerank", {"texts": ["a"]})
    assert answer.status == 422
    assert "query" in answer.json["error"]


@pytest.mark.parametrize(("field", "text"), [("texts", "\ud800"), ("documents", "")])
def test_errors_name_the_field_of_the_dialect(reranker: Client, field: str, text: str) -> None:
    answer = reranker.post("/v2/rerank", {"query": "", field: ["a", text]})
    assert answer.json["error"]["param"] == field
    assert answer.json["message"].endswith("(item 1)")


def test_options_of_the_dialects(reranker: Client) -> None:
    options = {"max_tokens_per_doc": 3, "truncate_prompt_tokens": 9, "truncation_direction": "Left"}
    reranker.post("/v2/rerank", {"query": "q", "documents": ["a"], **options})
    request = reranker.service.request
    assert isinstance(request, RankRequest)
    assert request.max_document_tokens == 3
    assert (request.options.max_tokens, request.options.truncate) == (9, True)
    assert request.options.truncation_side.value == "left"
    reranker.post("/rerank", {"query": "q", "texts": ["a"], "truncate": False, **options})
    request = reranker.service.request
    assert isinstance(request, RankRequest)
    assert request.max_document_tokens is None
    assert (request.options.max_tokens, request.options.truncate) == (None, False)


def test_the_query_counts_once_per_text(reranker: Client) -> None:
    headers = reranker.post("/rerank", {"query": "abc", "texts": ["d", "ef"]}).headers
    assert headers["x-compute-characters"] == "9"
    assert headers["x-compute-tokens"] == "10"
