"""Other published clients of typed decisions: `jev-lite`, `pydecide` and `system-one`."""

import asyncio
from typing import Any

import decide
import jev_lite
import pytest
import system_one
from decide.backends.typesafe import TypeSafeBackend
from system_one.settings import HTTPConfig

from client_kit import KEY, NAME, ServerUrl, ask

STATE = {"text": "Where is my parcel?", "since": 2019}
CRITERIA: Any = {"late": "over a week", "lost": None}
LEVELS: Any = ["calm", {"mood": "angry"}]
RAW = {
    "late": {"type": "noul", "instructions": "Is it late?"},
    "topic": {"type": "choice", "instructions": "Which?", "criteria": CRITERIA},
    "anger": {"type": "score", "instructions": "How?", "criteria": LEVELS},
}


@pytest.fixture
def direct(server: ServerUrl) -> Any:  # noqa: ANN401  # a document
    body = {"state": STATE, "questions": RAW}
    return ask(f"{server('keyed_decision')}/v1/systemone", body, key=KEY)["answers"]


def check(found: Any, direct: Any) -> None:  # noqa: ANN401  # whatever the client makes of answers
    assert list(found) == list(RAW)
    assert found["late"].noul == pytest.approx(direct["late"]["noul"], abs=1e-6)
    assert found["topic"].choice == direct["topic"]["choice"]
    assert dict(found["topic"].probabilities) == pytest.approx(
        direct["topic"]["probabilities"], abs=1e-6
    )
    assert found["anger"].score == pytest.approx(direct["anger"]["score"], abs=1e-6)
    assert found["anger"].confidence == pytest.approx(direct["anger"]["confidence"], abs=1e-4)


def test_jev_lite(server: ServerUrl, direct: Any) -> None:  # noqa: ANN401  # a document
    url = server("keyed_decision")
    questions: Any = {
        "late": jev_lite.Noul(instructions="Is it late?"),
        "topic": jev_lite.Choice(instructions="Which?", criteria=CRITERIA),
        "anger": jev_lite.Score(instructions="How?", criteria=LEVELS),
    }
    with jev_lite.TypeSafe(api_key=KEY, base_url=url, max_retries=0) as client:
        reply = client.system_one.create(state=STATE, questions=questions)
        check(reply.answers, direct)
        assert reply.model == NAME
        assert reply.request_id
        assert [model.name for model in client.models.list()] == [NAME]
        with pytest.raises(jev_lite.NotFoundError):
            client.system_one.create(state=STATE, questions=questions, model="other")
        with pytest.raises(jev_lite.UnprocessableEntityError):
            client.system_one.create(state=STATE, questions={"q": jev_lite.Box(instructions="?")})
    wrong = jev_lite.TypeSafe(api_key="wrong", base_url=url, max_retries=0)
    with wrong, pytest.raises(jev_lite.AuthenticationError):
        wrong.system_one.create(state=STATE, questions=questions)


def test_pydecide(server: ServerUrl, direct: Any) -> None:  # noqa: ANN401  # a document
    url = server("keyed_decision")
    client = decide.Client([TypeSafeBackend(KEY, base_url=url)])
    questions: Any = {
        "late": decide.Noul("Is it late?"),
        "topic": decide.Choice("Which?", CRITERIA),
        "anger": decide.Score("How?", LEVELS),
    }
    check(client.decide(STATE, questions).answers, direct)
    named = decide.Noul("Is it late?", labels={"true": "ja", "false": "nein"})
    assert 0 <= client.decide(STATE, {"q": named}).answers["q"].noul <= 1
    backend = TypeSafeBackend("wrong", base_url=url)
    request = decide.Request(state=STATE, questions=questions)
    with pytest.raises(decide.AuthError):
        backend.decide(request)


def test_system_one(server: ServerUrl, direct: Any) -> None:  # noqa: ANN401  # a document
    config = HTTPConfig(base_url=server("keyed_decision"), api_key=KEY, model="jev-latest")
    questions: Any = RAW
    agent = system_one.SystemOne(config)
    check(agent.ask(STATE, questions).answers, direct)
    later = system_one.AsyncSystemOne(config).ask(STATE, questions)
    check(asyncio.run(later).answers, direct)
    wrong = HTTPConfig(base_url=server("keyed_decision"), api_key="x", model="jev-latest")
    with pytest.raises(system_one.AuthenticationError):
        system_one.SystemOne(wrong).ask(STATE, questions)
