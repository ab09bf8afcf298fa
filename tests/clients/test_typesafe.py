"""`typesafe-sdk`, the typed SDK of System One, as published: sync, async, errors, compression."""

import asyncio
import importlib.util
import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typesafe_sdk import (
    AsyncTypeSafeClient,
    Box,
    Choice,
    ChoiceAnswer,
    Image,
    Noul,
    Question,
    RetryPolicy,
    Score,
    SystemOneResponse,
    TypeSafeAPIError,
    TypeSafeAuthenticationError,
    TypeSafeClient,
    TypeSafeNotFoundError,
    TypeSafeUnprocessableEntityError,
)

from client_kit import KEY, NAME, ServerUrl, ask

HAS_ZSTD = all(map(importlib.util.find_spec, ("backports", "backports.zstd")))
STATE = {"ticket": 4711, "text": "Wo ist mein Paket? 🙂", "tags": ["late", None]}
QUESTIONS: dict[str, Question] = {
    "is-late": Noul(instructions="Is it late?", criteria={"true": "over a week"}),
    "team of ½": Choice(
        instructions={"ask": "who?"}, criteria={"größe 🙂": None, "b": ["x", 1], "c": {"k": 2}}
    ),
    "anger": Score(criteria=["calm", {"mood": "annoyed"}, ["furious"]]),
}
RAW: Any = {
    "is-late": {
        "type": "noul",
        "instructions": "Is it late?",
        "criteria": {"true": "over a week"},
    },
    "team of ½": {
        "type": "choice",
        "instructions": {"ask": "who?"},
        "criteria": {"größe 🙂": None, "b": ["x", 1], "c": {"k": 2}},
    },
    "anger": {"type": "score", "criteria": ["calm", {"mood": "annoyed"}, ["furious"]]},
}
PIXEL = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


def client_of(url: str, key: str = "any", **options: Any) -> TypeSafeClient:  # noqa: ANN401  # the SDK's own
    return TypeSafeClient(api_key=key, base_url=url, retry=RetryPolicy(max_retries=0), **options)


@pytest.mark.parametrize("state", ["", "It is late.", STATE, [STATE, "and now?"]])
def test_typed_answers_are_those_of_the_wire(server: ServerUrl, state: Any) -> None:  # noqa: ANN401  # JSON
    url = server("decision")
    direct = ask(f"{url}/v1/systemone", {"state": state, "questions": RAW})
    with client_of(url) as client:
        reply = client.system_one(state=state, questions=QUESTIONS)
    assert list(reply.answers) == list(QUESTIONS)
    assert reply.model == NAME
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (
        direct["usage"]["input_tokens"],
        0,
    )
    assert reply.request_id == reply.raw_http_response.headers["x-request-id"]
    noul, choice, score = (direct["answers"][name] for name in QUESTIONS)
    assert reply.nouls["is-late"].noul == pytest.approx(noul["noul"], abs=1e-6)
    found = reply.choices["team of ½"]
    assert (found.choice, list(found.probabilities)) == (
        choice["choice"],
        list(RAW["team of ½"]["criteria"]),
    )
    assert found.probabilities == pytest.approx(choice["probabilities"], abs=1e-6)
    assert found.confidence == pytest.approx(choice["confidence"], abs=1e-6)
    level = reply.scores["anger"]
    assert level.legend == {0: "calm", 1: {"mood": "annoyed"}, 2: ["furious"]}
    assert level.score == pytest.approx(score["score"], abs=1e-6)
    assert list(level.probabilities) == [0, 1, 2]


def test_dictionaries_own_models_and_more_fields(server: ServerUrl) -> None:
    class Mine(SystemOneResponse):
        topic: ChoiceAnswer

    class Bare(BaseModel):
        usage: dict[str, int]

    topic: Any = {"topic": {"type": "choice", "criteria": {"parcel": None, "invoice": None}}}
    with client_of(server("decision"), model=NAME) as client:
        mine = client.system_one(
            "a " * 300, topic, extra_body={"max_len": 64, "future": 1}, response_model=Mine
        )
        assert mine.usage.input_tokens == 64
        assert mine.topic.choice in {"parcel", "invoice"}
        cut = json.loads(mine.raw_http_response.content)["answers"]["topic"]
        assert cut["x_truncated"] is True
        bare = client.system_one("a", topic, response_model=Bare)
        assert bare.usage["output_tokens"] == 0
        named = client.system_one(
            "a", topic, extra_headers={"x-typesafe-request-id": "mine-1"}, model="jev-latest"
        )
        assert named.request_id == "mine-1"


def test_models(server: ServerUrl) -> None:
    with client_of(server("decision")) as client:
        (model,) = client.models.list().models
    assert model.name == NAME
    assert model.description
    assert len(model.release_date.split("-")) == 3


def test_every_type_of_error(server: ServerUrl, caplog: pytest.LogCaptureFixture) -> None:
    question = {"q": Noul(instructions="?")}
    wrong = client_of(server("keyed_decision"), "wrong")
    with wrong, pytest.raises(TypeSafeAuthenticationError):
        wrong.system_one("a", question)
    with client_of(server("keyed_decision"), KEY) as client:
        assert client.system_one("a", question).nouls.keys() == {"q"}
        with pytest.raises(TypeSafeNotFoundError, match="no-such-model"):
            client.system_one("a", question, model="no-such-model")
        with pytest.raises(TypeSafeUnprocessableEntityError, match=r"questions\.q\.type"):
            client.system_one("a", {"q": Box(instructions="the dog")})
        with pytest.raises(TypeSafeUnprocessableEntityError, match="max_len") as refused:
            client.system_one("a", question, extra_body={"max_len": 0})
        assert refused.value.request_id
        with pytest.raises(TypeSafeAPIError) as unsupported:
            client.system_one(Image(PIXEL), question)
        assert unsupported.value.status == 415
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR]


@pytest.mark.skipif(not HAS_ZSTD, reason="the SDK's zstd extra is not installed")
def test_large_bodies_go_compressed(server: ServerUrl) -> None:
    with client_of(server("decision"), compression="zstd") as client:
        reply = client.system_one("late " * 1000, QUESTIONS)
    sent = reply.raw_http_response.request
    assert sent.headers["content-encoding"] == "zstd"
    assert len(sent.content) < 2000
    assert list(reply.answers) == list(QUESTIONS)


def test_asynchronous_calls_at_once(server: ServerUrl) -> None:
    async def run() -> list[SystemOneResponse]:
        async with AsyncTypeSafeClient(api_key="any", base_url=server("decision")) as client:
            calls = (client.system_one(f"case {i}", QUESTIONS) for i in range(8))
            return list(await asyncio.gather(*calls))

    replies = asyncio.run(run())
    with client_of(server("decision")) as client:
        for i, reply in enumerate(replies):
            alone = client.system_one(f"case {i}", QUESTIONS)
            assert reply.nouls["is-late"].noul == pytest.approx(
                alone.nouls["is-late"].noul, abs=1e-5
            )


def test_the_example_of_the_page(server: ServerUrl) -> None:
    page = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    program = example.replace("http://localhost:3000", server("decision"))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    noul, choice, request_id = done.stdout.split()
    assert 0 <= float(noul) <= 1
    assert choice in {"shipping", "billing"}
    assert len(request_id) == 32
