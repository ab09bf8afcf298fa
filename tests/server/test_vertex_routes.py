"""Several bodies in one request: all are answered or none, under one slot and one decision."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fake_engine import FakeEngine
from infinity_v3.artifacts.manifest import Heads, Kind, ScoreActivation
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.settings import ServiceSettings
from loopback import Answer, Client, ClientOf, StartServer, running_model
from tiny_models import fake_model

SCORES = {Kind.RERANKER: ("LABEL_0",), Kind.CLASSIFIER: ("bad", "so-so", "good")}


def _make(kind: Kind, engine: FakeEngine) -> Callable[[], Any]:
    labels = SCORES.get(kind, ())
    activation = ScoreActivation.SIGMOID if len(labels) == 1 else ScoreActivation.SOFTMAX
    heads = Heads(labels=labels, activation=activation if labels else None)
    prompts = PromptTable(named={"query": "w7 "})
    return lambda: fake_model(engine, kind=kind, heads=heads, prompts=prompts)


@pytest.fixture(scope="module")
def engine() -> FakeEngine:
    return FakeEngine()


@pytest.fixture(scope="module")
def embedder(engine: FakeEngine) -> Iterator[Client]:
    settings = ServiceSettings(max_concurrent_requests=1, max_queue_tokens=60)
    with running_model(
        _make(Kind.EMBEDDING, engine),
        settings,
        max_concurrent_requests=1,
        max_client_batch_size=4,
    ) as client:
        yield client


@pytest.fixture(scope="module")
def ranker() -> Iterator[Client]:
    engine = FakeEngine(outputs=("scores",), width=1)
    with running_model(_make(Kind.RERANKER, engine)) as client:
        yield client


def error_of(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]


def test_each_instance_is_answered_as_its_own_path_would(embedder: Client) -> None:
    bodies: list[dict[str, object]] = [
        {"inputs": "w5 w6"},
        {"inputs": ["w5", [1, 9, 2]], "dimensions": 3, "normalize": False},
    ]
    wanted = [embedder.post("/embed", body).json for body in bodies]
    answer = embedder.post("/vertex", {"instances": bodies})
    assert answer.status == 200, answer.body
    assert answer.json == {"predictions": wanted}
    assert not [name for name in answer.headers if name.startswith("x-compute")]
    packed = embedder.pack("/vertex", {"instances": bodies})
    assert packed.msgpack["predictions"][1][0] == pytest.approx(wanted[1][0])


def test_a_slot_holds_all_instances(embedder: Client) -> None:
    instances = [{"inputs": "w5"}, {"inputs": "w6"}, {"inputs": "w7"}]
    assert embedder.post("/vertex", {"instances": instances}).status == 200
    # The only slot is free again.
    assert embedder.post("/embed", {"inputs": "w5"}).status == 200


def test_a_ranking_body_is_ranked(ranker: Client) -> None:
    ranking = {"query": "w5", "texts": ["w6", "w8"], "return_text": True}
    documents = {"query": "w5", "documents": ["w6", "w8"]}
    answer = ranker.post("/vertex", {"instances": [ranking, documents]})
    assert answer.status == 200, answer.body
    first, second = answer.json["predictions"]
    assert first == ranker.post("/rerank", ranking).json
    assert second["results"] == ranker.post("/v1/rerank", documents).json["results"]
    assert second["meta"] == {"api_version": {"version": "1"}}


def test_other_bodies_follow_the_kind(client_of: ClientOf) -> None:
    classifier = client_of(Kind.CLASSIFIER)
    answer = classifier.post("/vertex", {"instances": [{"inputs": "a"}, {"inputs": [["b"]]}]})
    single = classifier.post("/predict", {"inputs": "a"}).json
    batch = classifier.post("/predict", {"inputs": [["b"]]}).json
    assert answer.json == {"predictions": [single, batch]}
    assert "deprecation" not in answer.headers


@pytest.mark.parametrize(
    ("body", "status", "fragments"),
    [
        ({}, 422, ("instances",)),
        ({"instances": None}, 422, ("instances",)),
        ({"instances": []}, 400, ("`instances` cannot be empty",)),
        ({"instances": [{"inputs": "w5"}, 5]}, 422, ("instances[1]",)),
        ({"instances": [{"inputs": "w5"}, {}]}, 422, ("inputs", "(instance 1)")),
        ({"instances": [{"inputs": "w5"}, {"inputs": 5}]}, 422, ("`inputs`", "(instance 1)")),
        ({"instances": [{"inputs": "w5"}, {"inputs": []}]}, 400, ("empty", "(instance 1)")),
        ({"instances": [{"inputs": ["w5", ""]}]}, 400, ("empty", "(instance 0, item 1)")),
        ({"instances": [{"inputs": ""}, {"inputs": ""}]}, 400, ("empty", "(instance 0)")),
        ({"instances": [{"inputs": [[1], [5000]]}]}, 422, ("5000", "(instance 0, item 1)")),
        (
            {"instances": [{"inputs": "w5"}, {"inputs": "w5", "dimensions": 99}]},
            422,
            ("dimension", "(instance 1)"),
        ),
        (
            {"instances": [{"query": "w5", "texts": ["w6"]}]},
            424,
            ("model is not a re-ranker model", "(instance 0)"),
        ),
        (
            {"instances": [{"inputs": ["w5"] * 3}, {"inputs": ["w5"] * 2}]},
            422,
            ("batch size 5 > maximum allowed batch size 4", "(instance 1)"),
        ),
        ({"instances": [{"inputs": "w5"}] * 5}, 422, ("batch size 5 > maximum",)),
        (
            {"instances": [{"inputs": "w5 " * 40}, {"inputs": "w5 " * 40}]},
            422,
            ("84 tokens", "--max-queue-tokens"),
        ),
        ({"instances": [{"inputs": "w5"}], "service_tier": "gold"}, 422, ("service_tier",)),
        ({"instances": [{"inputs": "w5", "service_tier": "gold"}]}, 422, ("service_tier",)),
    ],
)
def test_one_instance_at_fault_fails_the_request(
    embedder: Client, engine: FakeEngine, body: object, status: int, fragments: tuple[str, ...]
) -> None:
    before = len(engine.batches)
    answer = embedder.post("/vertex", body)
    assert answer.status == status, answer.body
    assert all(fragment in answer.json["error"] for fragment in fragments), answer.body
    assert len(engine.batches) == before
    assert embedder.post("/vertex", {"instances": [{"inputs": "w5"}]}).status == 200


def test_the_whole_request_is_refused_where_the_queue_is_full(
    embedder: Client, engine: FakeEngine
) -> None:
    answers: list[Answer] = []
    long = {"instances": [{"inputs": "w5 " * 20}, {"inputs": "w6 " * 20}]}
    engine.gate.clear()
    engine.entered.clear()
    thread = threading.Thread(target=lambda: answers.append(embedder.post("/vertex", long)))
    thread.start()
    try:
        assert engine.entered.wait(10)
        refused = embedder.post("/vertex", {"instances": [{"inputs": "w5"}, {"inputs": "w6"}]})
        assert refused.status == 429
        assert "instance" not in refused.json["error"]
        assert int(refused.headers["retry-after"]) >= 1
    finally:
        engine.gate.set()
        thread.join(10)
    assert [answer.status for answer in answers] == [200]


def test_a_client_that_leaves_frees_the_slot(embedder: Client, engine: FakeEngine) -> None:
    body = json.dumps({"instances": [{"inputs": "w5"}, {"inputs": "w6"}]}).encode()
    head = "POST /vertex HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    engine.gate.clear()
    engine.entered.clear()
    try:
        with socket.create_connection(("127.0.0.1", embedder.port), timeout=10) as leaving:
            leaving.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            assert engine.entered.wait(10)
            assert embedder.post("/embed", {"inputs": "w5"}).status == 429
        embedder.wait_until(
            lambda: (
                embedder.get("/status.json").json["models"][0]["load"]["requests"]["in_flight"] == 0
            )
        )
    finally:
        engine.gate.set()
    assert embedder.post("/vertex", {"instances": [{"inputs": "w5"}]}).status == 200


def test_metrics_count_the_request_once_and_its_items(start_server: StartServer) -> None:
    with start_server() as client:
        body = {"instances": [{"inputs": "a"}, {"inputs": ["b", "c"]}]}
        assert client.post("/vertex", body).status == 200
        assert client.post("/vertex", {"instances": [{"inputs": [""]}]}).status == 400
        text = client.get("/metrics").body.decode()
    assert 'te_request_count{method="batch"} 2' in text
    assert 'te_request_success{method="batch"} 1' in text
    assert "te_embed_success 3" in text
    assert 'te_request_failure{err="validation"} 1' in text


def test_instances_may_name_the_one_model(start_server: StartServer) -> None:
    with start_server(("one", "two")) as client:
        named = {"inputs": "a", "model": "two"}
        assert client.post("/vertex", {"instances": [named, {"inputs": "b"}]}).status == 200
        assert (
            client.post("/vertex", {"instances": [{"inputs": "b"}], "model": "one"}).status == 200
        )
        nobody = client.post("/vertex", {"instances": [{"inputs": "b"}]})
        assert (nobody.status, "one, two" in nobody.json["error"]) == (422, True)
        both = client.post("/vertex", {"instances": [named], "model": "one"})
        assert (both.status, "(instance 0)" in both.json["error"]) == (422, True)
        assert client.post("/vertex", {"instances": [named], "model": "x"}).status == 422
        assert client.post("/vertex", {"instances": [{"inputs": "b"}], "model": "x"}).status == 404
