"""Several models in one process: routing, settings of their own, and one that fails alone."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import pytest

from fake_engine import FakeEngine
from infinity_v3.runtime.observer import SilentObserver
from infinity_v3.runtime.prompts import PromptTable
from infinity_v3.runtime.service import InferenceService
from infinity_v3.runtime.settings import ServiceSettings
from infinity_v3.runtime.worker import MAX_FAILED_BATCHES
from infinity_v3.server.config import ModelConfig, ServeConfig
from infinity_v3.server.context import make_context
from infinity_v3.server.lifecycle import Phase
from infinity_v3.server.served import ModelTable, ServedModel
from loopback import Answer, Client, ServerThread
from tiny_models import MAX_INPUT_TOKENS, fake_model

BROKEN = 13
FIRST, SECOND = "first", "org/second"
CONFIGS: Mapping[str, ModelConfig] = {
    FIRST: ModelConfig(model_id="a", max_client_batch_size=2, auto_truncate=False),
    SECOND: ModelConfig(model_id="b", max_client_batch_size=3),
}


@contextmanager
def serving(engines: Mapping[str, FakeEngine]) -> Iterator[Client]:
    """A server over the real inference service of each engine."""
    context = make_context(ServeConfig(models=tuple(CONFIGS.values())))
    served: list[ServedModel] = []

    def prepare() -> None:
        served.extend(_served(name, engine) for name, engine in engines.items())
        context.models = ModelTable(served)
        context.lifecycle.replace_models(dict.fromkeys(engines, Phase.READY))

    with ServerThread(context, prepare=prepare) as server:
        client = Client(port=server.port, context=context, loop=server.loop)
        try:
            yield client
        finally:
            for model in served:
                client.call(model.service.close)


def _served(name: str, engine: FakeEngine) -> ServedModel:
    config = CONFIGS[name]
    prompts = PromptTable(named={"query": "w7 "} if name == FIRST else {"ask": "w8 "})
    service = InferenceService(
        fake_model(engine, prompts=prompts),
        ServiceSettings(is_truncating=config.auto_truncate),
        SilentObserver(),
    )
    service.start()
    return ServedModel(
        name=name,
        service=service,
        info=service.info,
        config=config,
        num_tokenizer_threads=1,
        created_s=1,
    )


@pytest.fixture(scope="module")
def engines() -> dict[str, FakeEngine]:
    return {FIRST: FakeEngine(), SECOND: FakeEngine(width=4)}


@pytest.fixture(scope="module")
def both(engines: dict[str, FakeEngine]) -> Iterator[Client]:
    with serving(engines) as client:
        yield client


def embed(client: Client, model: str, text: str = "w5", **more: object) -> Answer:
    return client.post("/embed", {"model": model, "inputs": text, **more})


def test_requests_go_to_the_model_they_name(both: Client, engines: dict[str, FakeEngine]) -> None:
    counts = {name: len(engine.batches) for name, engine in engines.items()}
    assert [len(row) for row in embed(both, SECOND).json] == [4]
    assert [len(row) for row in embed(both, FIRST).json] == [8]
    assert {name: len(engine.batches) for name, engine in engines.items()} == {
        name: count + 1 for name, count in counts.items()
    }
    reply = both.post("/v1/embeddings", {"model": SECOND, "input": "w5"}).json
    assert reply["model"] == SECOND


def test_a_request_must_name_one_that_is_served(both: Client) -> None:
    missing = both.post("/embed", {"inputs": "w5"})
    assert missing.status == 422
    assert f"{FIRST}, {SECOND}" in missing.json["error"]
    unknown = both.post("/v1/embeddings", {"model": "third", "input": "w5"})
    assert (unknown.status, unknown.json["error"]["code"]) == (404, "model_not_found")


def test_facts_of_each(both: Client) -> None:
    listed = both.get("/v1/models").json["data"]
    assert [entry["id"] for entry in listed] == [FIRST, SECOND]
    assert both.get(f"/v1/models/{quote(SECOND, safe='')}").json["id"] == SECOND
    assert both.get("/info").json["served_model_name"] == FIRST
    found = both.get(f"/info?model={quote(SECOND, safe='')}").json
    assert (found["served_model_name"], found["max_client_batch_size"]) == (SECOND, 3)


@pytest.mark.parametrize(("model", "limit"), [(FIRST, 2), (SECOND, 3)])
def test_items_of_a_request_are_bounded_for_each(both: Client, model: str, limit: int) -> None:
    texts = ["w5"] * limit
    assert both.post("/embed", {"model": model, "inputs": texts}).status == 200
    refused = both.post("/embed", {"model": model, "inputs": [*texts, "w5"]})
    assert refused.status == 422
    assert f"maximum allowed batch size {limit}" in refused.json["error"]


@pytest.mark.parametrize(("model", "status"), [(FIRST, 422), (SECOND, 200)])
def test_long_texts_are_cut_or_refused_by_each(both: Client, model: str, status: int) -> None:
    assert embed(both, model, "w5 " * (2 * MAX_INPUT_TOKENS)).status == status


def test_prompts_of_one_are_unknown_to_the_other(both: Client) -> None:
    assert embed(both, FIRST, prompt_name="query").status == 200
    refused = embed(both, SECOND, prompt_name="query")
    assert refused.status == 422
    assert "ask" in refused.json["error"]


def probes(client: Client) -> dict[str, Any]:
    ready = client.get("/ready")
    return {
        "health": client.get("/health").status,
        "ready": ready.status,
        "models": ready.json["models"],
    }


def test_one_that_fails_does_not_take_the_other_down() -> None:
    engines = {FIRST: FakeEngine(), SECOND: FakeEngine()}
    engines[FIRST].failing_ids = {BROKEN}
    with serving(engines) as client:
        for _ in range(MAX_FAILED_BATCHES - 1):
            assert embed(client, FIRST, f"w{BROKEN}").status == 424
            assert embed(client, SECOND, f"w{BROKEN}").status == 200
        assert embed(client, FIRST, "w5").status == 200
        up = {"health": 200, "ready": 200, "models": {FIRST: "ready", SECOND: "ready"}}
        assert probes(client) == up

        for _ in range(MAX_FAILED_BATCHES):
            assert embed(client, FIRST, f"w{BROKEN}").status == 424
        assert probes(client) == {
            "health": 503,
            "ready": 503,
            "models": {FIRST: "failed", SECOND: "ready"},
        }
        refused = embed(client, FIRST, "w5")
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        assert refused.json["error_type"] == "Unhealthy"
        assert f"the engine of model {FIRST} is down" in refused.json["error"]
        for path, body in (
            ("/embed", {"inputs": "w5"}),
            ("/v1/embeddings", {"input": "w5"}),
            ("/", {"inputs": "w5"}),
            ("/tokenize", {"inputs": "w5"}),
        ):
            assert client.post(path, {"model": FIRST, **body}).status == 503
            assert client.post(path, {"model": SECOND, **body}).status == 200


def test_when_all_are_down_bodies_are_not_read() -> None:
    engines = {FIRST: FakeEngine(), SECOND: FakeEngine()}
    with serving(engines) as client:
        for name, engine in engines.items():
            engine.failing_ids = {BROKEN}
            for _ in range(MAX_FAILED_BATCHES):
                assert embed(client, name, f"w{BROKEN}").status == 424
        refused = client.post("/embed", b"{")
        assert (refused.status, refused.json["error_type"]) == (503, "Unhealthy")
