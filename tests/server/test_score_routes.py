"""/v1/score: pairs of texts, by rerankers and by the cosine of embeddings."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fake_engine import FakeEngine, pooled
from infinity_v3.artifacts.manifest import Heads, Kind, ScoreActivation
from infinity_v3.runtime.prompts import PromptTable
from loopback import Answer, Client, ClientOf, running_model
from tiny_models import END, START, fake_model

PROMPTS = PromptTable(named={"query": "w7 "})


@pytest.fixture(scope="module")
def embedder() -> Iterator[Client]:
    with running_model(lambda: fake_model(FakeEngine(), prompts=PROMPTS)) as client:
        yield client


@pytest.fixture(scope="module")
def ranker() -> Iterator[Client]:
    def make() -> Any:  # noqa: ANN401  # a loaded model
        heads = Heads(labels=("LABEL_0",), activation=ScoreActivation.SIGMOID)
        engine = FakeEngine(outputs=("scores",), width=1)
        return fake_model(engine, kind=Kind.RERANKER, heads=heads)

    with running_model(make) as client:
        yield client


def scores_of(answer: Answer) -> list[float]:
    assert answer.status == 200, answer.body
    entries = answer.json["data"]
    assert [entry["index"] for entry in entries] == list(range(len(entries)))
    assert {entry["object"] for entry in entries} == {"score"}
    return [entry["score"] for entry in entries]


def cosine(first: int, second: int) -> float:
    a, b = (pooled((START, token, END)).astype(np.float64) for token in (first, second))
    return float(a @ b / np.sqrt((a @ a) * (b @ b)))


def test_embeddings_are_compared(embedder: Client) -> None:
    body = {"text_1": "w5", "text_2": ["w6", "w8", "w5"]}
    answer = embedder.post("/v1/score", body)
    wanted = [cosine(5, 6), cosine(5, 8), 1.0]
    assert scores_of(answer) == pytest.approx(wanted, abs=1e-9)
    reply = answer.json
    assert reply["object"] == "list"
    assert reply["model"] == "tiny"
    assert reply["id"].startswith("score-")
    assert reply["usage"] == {"prompt_tokens": 9, "total_tokens": 9}
    assert answer.headers["x-compute-tokens"] == "9"
    assert answer.headers["x-compute-characters"] == "12"


def test_pairs_stand_side_by_side(embedder: Client) -> None:
    body = {"queries": ["w5", "w6"], "documents": ["w8", "w9"]}
    answer = embedder.post("/v1/score", body)
    assert scores_of(answer) == pytest.approx([cosine(5, 8), cosine(6, 9)], abs=1e-9)
    single = embedder.post("/v1/score", {"text_1": "w5", "text_2": "w8"})
    assert scores_of(single) == pytest.approx([cosine(5, 8)], abs=1e-9)


def test_a_prompt_goes_to_both_sides(embedder: Client) -> None:
    body = {"text_1": "w5", "text_2": "w5", "prompt_name": "query"}
    answer = embedder.post("/v1/score", body)
    assert scores_of(answer) == [1.0]
    assert answer.json["usage"]["prompt_tokens"] == 4


def test_a_reranker_scores_as_it_ranks(ranker: Client) -> None:
    documents = ["w6", "w8", "w6"]
    ranked = ranker.post("/rerank", {"query": "w5", "texts": documents}).json
    wanted = [entry["score"] for entry in sorted(ranked, key=lambda entry: entry["index"])]
    answer = ranker.post("/v1/score", {"text_1": "w5", "text_2": documents})
    assert scores_of(answer) == wanted
    assert wanted[0] == wanted[2]
    assert answer.json["usage"] == {"prompt_tokens": 15, "total_tokens": 15}
    packed = ranker.pack("/v1/score", {"text_1": "w5", "text_2": documents})
    assert [entry["score"] for entry in packed.msgpack["data"]] == wanted


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        ({}, 422, "`text_1`"),
        ({"text_1": "w5"}, 422, "`text_2`"),
        ({"text_1": "w5", "documents": "w6"}, 422, "`queries`"),
        ({"text_1": "w5", "text_2": "w6", "queries": "w5"}, 422, "`queries`"),
        ({"text_1": None, "text_2": "w6"}, 422, "text_1"),
        ({"text_1": "w5", "text_2": 5}, 422, "text_2"),
        ({"text_1": "w5", "text_2": ["w6", 5]}, 422, "text_2[1]"),
        ({"text_1": ["w5", "w6"], "text_2": ["w6"]}, 422, "as many as `text_2` has, 1"),
        ({"text_1": ["w5", "w6"], "text_2": ["w6"] * 3}, 422, "Given: 2"),
        ({"text_1": [], "text_2": []}, 400, "`text_1` cannot be empty"),
        ({"queries": "w5", "documents": []}, 400, "`documents` cannot be empty"),
        ({"text_1": "", "text_2": ""}, 400, "cannot be empty"),
        ({"text_1": "w5", "text_2": ["w6", "\ud800"]}, 422, "(item 1)"),
        ({"text_1": "w5", "text_2": "w6", "truncate_prompt_tokens": 0}, 422, "truncate_prompt"),
        ({"text_1": "w5", "text_2": ["w6"] * 1025}, 422, "batch size 1025"),
    ],
)
def test_what_cannot_be_scored(
    embedder: Client, ranker: Client, body: object, status: int, fragment: str
) -> None:
    for client in (embedder, ranker):
        answer = client.post("/v1/score", body)
        assert answer.status == status, answer.body
        assert fragment in answer.json["error"]["message"]
        assert answer.json["code"] == status


def test_one_empty_half_is_a_pair_but_no_text(embedder: Client, ranker: Client) -> None:
    body = {"text_1": "", "text_2": ["w5"]}
    assert ranker.post("/v1/score", body).status == 200
    assert embedder.post("/v1/score", body).status == 400


def test_rerankers_take_no_prompt(ranker: Client) -> None:
    answer = ranker.post("/v1/score", {"text_1": "w5", "text_2": "w6", "prompt_name": "query"})
    assert answer.status == 422


@pytest.mark.parametrize("kind", [Kind.CLASSIFIER, Kind.SPARSE, Kind.TOKEN_CLASSIFIER])
def test_other_kinds_cannot_score(client_of: ClientOf, kind: Kind) -> None:
    answer = client_of(kind).post("/v1/score", {"text_1": "a", "text_2": "b"})
    assert (answer.status, answer.json["error"]["code"]) == (424, "unsupported_task")


def test_the_capability_is_listed(client_of: ClientOf) -> None:
    for kind, is_scoring in ((Kind.EMBEDDING, True), (Kind.RERANKER, True), (Kind.SPARSE, False)):
        [entry] = client_of(kind).get("/v1/models").json["data"]
        assert ("score" in entry["capabilities"]) is is_scoring
