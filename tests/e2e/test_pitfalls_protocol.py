"""Pitfalls of the field around HTTP: keys, browsers, dialects, identifiers, metrics, shutdown."""

import json
import random
import re
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from edge_case import (
    CLASSIFIER,
    EMBED,
    KEY,
    OPENAI,
    RANKER,
    SHORT,
    WITH_KEY,
    Headers,
    Refusal,
    ask,
    assert_refused,
    invalid,
)
from http_client import HttpClient, Json
from http_metrics import Samples, read_metrics, wait_for
from server_process import ServerProcess
from tiny_artifacts import TinyArtifact

UNAUTHORIZED = Refusal(status=401, kind="Unauthorized", code="invalid_api_key")
RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")


@pytest.fixture
def client(minilm_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(minilm_server.base_url) as client:
        yield client


@pytest.fixture
def several(several_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(several_server.base_url) as client:
        yield client


def test_pit_18_probes_need_no_key(several: HttpClient) -> None:
    for path in ("/health", "/ping", "/", "/ready", "/metrics", "/docs", "/api-doc/openapi.json"):
        assert several.get(path).status == 200, path
        assert several.get(path, {"authorization": "Bearer wrong"}).status == 200, path
    for path in ("/info", "/status", "/status.json", "/models", "/v1/models"):
        refused = several.get(path)
        assert_refused(refused, "/v1/models" if "models" in path else path, UNAUTHORIZED)
        assert several.get(path, WITH_KEY).status == 200, path
    for path in (EMBED, OPENAI, "/rerank", "/tokenize", "/", "/invocations"):
        assert_refused(several.post(path, {}), path, UNAUTHORIZED)


def test_pit_19_browsers_may_send_a_key(several: HttpClient) -> None:
    headers = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization,content-type",
    }
    preflight = several.request("OPTIONS", OPENAI, headers=headers)
    assert preflight.status == 204
    assert preflight.headers["access-control-allow-origin"] == "*"
    assert "POST" in preflight.headers["access-control-allow-methods"]
    allowed = preflight.headers["access-control-allow-headers"].split(", ")
    assert {"authorization", "content-type"} <= set(allowed)
    for key in ({}, WITH_KEY):
        reply = several.post(EMBED, {}, {"origin": "https://app.example", **key})
        assert reply.headers["access-control-allow-origin"] == "*"


@pytest.mark.parametrize("header", [KEY, f"Basic {KEY}", f"Token {KEY}", "Bearer", "Bearer "])
def test_pit_20_a_key_without_its_scheme_gets_a_hint(several: HttpClient, header: str) -> None:
    reply = several.post(OPENAI, {"input": "a"}, {"authorization": header})
    assert_refused(reply, OPENAI, UNAUTHORIZED)
    assert reply.headers["www-authenticate"] == "Bearer"
    assert "Bearer" in reply.body.decode()
    assert KEY not in reply.body.decode()


JINA: Mapping[str, object] = {
    "query": "the quick fox",
    "documents": ["the dog", "the fox", {"text": "a cat"}],
    "top_n": 2,
    "return_documents": True,
}
COHERE: Mapping[str, object] = {
    "query": "the quick fox",
    "documents": ["the dog", "the fox", "a cat"],
    "max_tokens_per_doc": 4096,
    "priority": 0,
    "rank_fields": ["text"],
}


@pytest.mark.parametrize("path", RERANK_PATHS)
def test_pit_26_dialects_on_every_path(several: HttpClient, path: str) -> None:
    jina = ask(several, path, {"model": RANKER, **JINA}, WITH_KEY)
    assert (jina["object"], jina["model"]) == ("rerank", RANKER)
    assert re.fullmatch("rerank-[0-9a-f]{32}", jina["id"])
    assert len(jina["results"]) == 2
    for entry in jina["results"]:
        text = ["the dog", "the fox", "a cat"][entry["index"]]
        assert entry["document"] == {"text": text}
    cohere = ask(several, path, {"model": RANKER, **COHERE}, WITH_KEY)
    assert cohere["meta"]["api_version"]["version"] == ("2" if path == "/v2/rerank" else "1")
    assert [set(entry) for entry in cohere["results"]] == [{"index", "relevance_score"}] * 3
    scores = [entry["relevance_score"] for entry in cohere["results"]]
    assert scores == sorted(scores, reverse=True)
    tei = {"model": RANKER, "query": "q", "texts": ["a", "b"], "return_text": True}
    assert {entry["text"] for entry in ask(several, path, tei, WITH_KEY)} == {"a", "b"}


@pytest.mark.parametrize("path", RERANK_PATHS)
def test_pit_26_top_n(several: HttpClient, path: str) -> None:
    for wanted, count in ((1, 1), (3, 3), (8000, 3), (None, 3)):
        body = {"model": RANKER, **JINA, "top_n": wanted}
        assert len(ask(several, path, body, WITH_KEY)["results"]) == count
    for wrong in (0, -1, 1.5, "2"):
        reply = several.post(path, {"model": RANKER, **JINA, "top_n": wrong}, WITH_KEY)
        assert_refused(reply, path, invalid("`top_n`"))


def test_pit_39_names_with_a_slash(several: HttpClient) -> None:
    listed: Json = several.get("/v1/models", WITH_KEY).json()
    assert SHORT in [entry["id"] for entry in listed["data"]]
    for spelling in (quote(SHORT, safe=""), SHORT):
        shown: Json = several.get(f"/v1/models/{spelling}", WITH_KEY).json()
        assert shown["id"] == SHORT
    assert several.get("/v1/models/org", WITH_KEY).status == 404
    body = {"model": SHORT, "input": "a"}
    assert ask(several, OPENAI, body, WITH_KEY)["model"] == SHORT


def test_pit_39_names_of_clients_are_no_labels(several: HttpClient) -> None:
    assert several.post(OPENAI, {"input": "a", "model": "first"}, WITH_KEY).status == 404
    before = labels(read_metrics(several))
    choice = random.Random(39)
    for _ in range(50):
        name = "".join(choice.choices('abc"\\\n/{}é', k=choice.randint(1, 30)))
        reply = several.post(OPENAI, {"input": "a", "model": name}, WITH_KEY)
        refusal = Refusal(status=404, kind="NotFound", code="model_not_found")
        assert_refused(reply, OPENAI, refusal)
    assert labels(read_metrics(several)) == before


def labels(samples: Samples) -> set[str]:
    """Every series by its name and labels."""
    return set(samples)


def test_pit_40_identifiers_and_usage(client: HttpClient) -> None:
    headers: Headers = {"x-request-id": "the-same-again"}
    for body, status in (({"input": "test"}, 200), ({"input": ""}, 400), ({"input": "a"}, 200)):
        reply = client.post(OPENAI, body, headers)
        assert (reply.status, reply.headers["x-request-id"]) == (status, "the-same-again")
    answer = ask(client, OPENAI, {"input": ["test", [101, 3231, 3231, 102]]})
    assert answer["usage"] == {"prompt_tokens": 7, "total_tokens": 7}


def test_pit_40_nothing_is_lost_when_the_server_goes(small: TinyArtifact, tmp_path: Path) -> None:
    log = tmp_path / "requests.jsonl"
    with (
        ServerProcess(small.artifact, "--request-log", str(log)) as server,
        ThreadPoolExecutor(8) as pool,
    ):
        running = [pool.submit(ask_until_told, server, seed) for seed in range(8)]
        wait_for(server, "te_request_success", 50)
        begun_s = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - begun_s < 30
        told = [one.result() for one in running]
    answers = [answer for one in told for answer in one.answers]
    assert {answer.status for answer in answers} <= {200, 503}
    assert all(answer.is_last for answer in answers if answer.status == 503)
    accepted = {json.loads(line)["request_id"] for line in log.read_text().splitlines()}
    # Between requests a connection may be closed; what was accepted has been answered.
    assert accepted.isdisjoint(one.cut for one in told)
    assert accepted >= {answer.request_id for answer in answers if answer.status == 200}


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """How one request of a client ended; `is_last`: the server closes the connection."""

    request_id: str
    status: int
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a client was answered, and the request that it could not send on a closed connection."""

    answers: tuple[Answer, ...]
    cut: str | None = None


def ask_until_told(server: ServerProcess, seed: int) -> Told:
    """Ask on one connection until it is closed."""
    choice = random.Random(seed)
    answers: list[Answer] = []
    with HttpClient(server.base_url) as client:
        while not answers or not answers[-1].is_last:
            request_id = f"{seed}-{len(answers)}"
            texts = ["the dog " * choice.randint(1, 9)] * choice.randint(1, 9)
            try:
                reply = client.post(EMBED, {"inputs": texts}, {"x-request-id": request_id})
            except ConnectionError:
                return Told(answers=tuple(answers), cut=request_id)
            is_last = reply.headers.get("connection") == "close"
            answers.append(Answer(request_id=request_id, status=reply.status, is_last=is_last))
    return Told(answers=tuple(answers))


EXACT_NAMES = (
    *("te_request_count", "te_request_success", "te_request_failure"),
    *("te_embed_count", "te_embed_success", "te_predict_count", "te_predict_success"),
)


@pytest.mark.parametrize("inputs", ["the dog", [["the dog"], ["the fox"]]])
def test_pit_41_one_request_counts_once(several: HttpClient, inputs: object) -> None:
    method, num_items = ("batch", 2) if isinstance(inputs, list) else ("single", 1)
    before = read_metrics(several)
    ask(several, "/predict", {"model": CLASSIFIER, "inputs": inputs}, WITH_KEY)
    after = read_metrics(several)
    grown = {name: value - before[name] for name, value in after.items() if name in before}
    moved = {name: value for name, value in grown.items() if name.startswith(EXACT_NAMES) and value}
    assert moved == {
        f'te_request_count{{method="{method}"}}': 1,
        f'te_request_success{{method="{method}"}}': 1,
        "te_predict_count": num_items,
        "te_predict_success": num_items,
    }
    assert not [name for name in after if name.startswith("te_") and "_total" in name]
