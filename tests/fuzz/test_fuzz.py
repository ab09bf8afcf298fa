"""The short form of the fuzz campaigns; `make fuzz` runs the long one against real engines."""

import json
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from typing import Any

import pytest

from fake_engine import FakeEngine
from fuzz_app import KINDS, FuzzApp
from fuzz_campaigns import Budget, Tally, fuzz_app, fuzz_asks, fuzz_codecs
from fuzz_checks import FuzzAnswer, FuzzFailure, check_answer
from fuzz_codecs import CODEC_CHECKS
from fuzz_decision_campaign import fuzz_decisions
from fuzz_decision_checks import DECISION_PATHS, decision_problem
from fuzz_report import FuzzOutcome, render
from fuzz_requests import FuzzRequest
from fuzz_routes import post_routes
from fuzz_servers import LiveServer, live_server
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.outputs import MAIN_OUTPUTS
from infinity_v3.server.errors import Shape
from loopback import running_model
from tiny_models import fake_model

SEED = 20_000
NUM_INPUTS = 2000
NUM_DECISIONS = 400
HEADERS = {"x-request-id": "a", "content-type": "application/json"}
TRACEBACK = b'{"error":"Traceback","error_type":"Validation"}'
REQUEST = FuzzRequest(path="/embed", body=b'{"inputs":"a"}', headers=())


@pytest.fixture(scope="module")
def app_tally() -> Tally:
    return fuzz_app(Budget(num_inputs=NUM_INPUTS), SEED, lambda text: None, num_examples=2)


@pytest.fixture
def live() -> Iterator[LiveServer]:
    def make_model() -> object:
        return fake_model(FakeEngine(outputs=(MAIN_OUTPUTS[Kind.EMBEDDING], "hidden")))

    with ExitStack() as stack:
        client = stack.enter_context(running_model(make_model))  # type: ignore[arg-type]
        yield live_server(Kind.EMBEDDING, client.port, stack)


def test_every_post_route_is_asked_and_answers(app_tally: Tally) -> None:
    assert app_tally.num_inputs >= NUM_INPUTS
    answered = {path for path, status in app_tally.replies if status == 200}
    refused = {path for path, status in app_tally.replies if status in {400, 422}}
    paths = {route.path for route in post_routes()}
    assert paths - answered == set()
    assert paths - refused == set()


def test_decisions() -> None:
    app = FuzzApp(Kind.DECISION)
    budget = Budget(num_inputs=NUM_DECISIONS)
    try:
        tally = fuzz_decisions(app.ask, budget, SEED, lambda text: None, num_examples=1)
    finally:
        app.close()
    statuses = {status for path, status in tally.replies if path in DECISION_PATHS}
    assert statuses >= {200, 415, 422}
    # The others went to the three paths that mean a decision route here.
    assert tally.num_decisions >= NUM_DECISIONS * 2 // 5


ASKED: dict[str, Any] = {
    "a": {"type": "choice", "criteria": {"x": None, "y": None}},
    "b": {"type": "score", "criteria": ["low", 1, "high"]},
}
RIGHT: dict[str, Any] = {
    "model": "m",
    "answers": {
        "a": {
            "type": "choice",
            "choice": "x",
            "probabilities": {"x": 0.5, "y": 0.5},
            "confidence": 0.0,
            "x_native_confidence": 0.0,
        },
        "b": {
            "type": "score",
            "score": 1.6,
            "legend": {"0": "low", "1": 1, "2": "high"},
            "probabilities": {"0": 0.1, "1": 0.2, "2": 0.7},
            "confidence": 0.4,
            "x_native_confidence": 0.27015330083790245,
        },
    },
    "usage": {"input_tokens": 9, "output_tokens": 0},
}


@pytest.mark.parametrize(
    ("keys", "value", "problem"),
    [
        ((), None, None),
        (("answers", "a", "choice"), "y", "not the first of the likeliest"),
        (("answers", "a", "probabilities"), {"y": 0.5, "x": 0.5}, "not those that were sent"),
        (("answers", "a", "x_native_confidence"), 0.1, "should be"),
        (("answers", "b", "score"), 1.5, "should be"),
        (("answers", "b", "confidence"), 0.5, "should be"),
        (("answers", "b", "legend"), {"0": "low", "1": True, "2": "high"}, "the levels"),
        (("answers", "b", "probabilities"), {"0": 0.1, "1": 0.2, "2": 0.6}, "add up to"),
        (("answers", "b", "extra"), 1, "fields"),
        (("answers", "b"), {"type": "noul", "noul": 0.5}, "fields"),
        (("usage", "input_tokens"), 1, "usage"),
        (("usage", "input_tokens"), 9.0, "fits no request"),
        (("more",), 1, "no reply"),
    ],
)
def test_wrong_replies_to_questions_are_found(
    keys: tuple[str, ...], value: object, problem: str | None
) -> None:
    reply = deepcopy(RIGHT)
    node = reply
    for key in keys[:-1]:
        node = node[key]
    if keys:
        node[keys[-1]] = value
    body = json.dumps({"state": "", "questions": ASKED}).encode()
    asked = FuzzRequest(path="/v1/decide", body=body, headers=())
    found = decision_problem(asked, reply)
    assert found is None if problem is None else problem in str(found)


def test_codecs() -> None:
    tally = fuzz_codecs(Budget(num_inputs=600), SEED, num_examples=8)
    assert set(tally.codecs) == set(CODEC_CHECKS)


def test_live_server(live: LiveServer) -> None:
    tally = fuzz_asks(
        {live.kind: live.ask}, Budget(num_inputs=600), SEED, lambda text: None, num_examples=1
    )
    assert tally.num_inputs >= 600


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (FuzzAnswer(status=500, headers={}, body=b""), "status 500"),
        (FuzzAnswer(status=200, headers={}, body=b"[]"), "no x-request-id"),
        (FuzzAnswer(status=200, headers=HEADERS, body=b"{"), "cannot be read"),
        (FuzzAnswer(status=200, headers=HEADERS, body=b"[[NaN]]"), "not finite"),
        (FuzzAnswer(status=422, headers=HEADERS, body=b'{"error":"a"}'), "another shape"),
        (FuzzAnswer(status=422, headers=HEADERS, body=TRACEBACK), "a fault of ours"),
    ],
)
def test_wrong_answers_are_found_and_can_be_sent_again(answer: FuzzAnswer, problem: str) -> None:
    with pytest.raises(FuzzFailure, match=problem) as failure:
        check_answer(REQUEST, answer, Shape.TEI)
    assert "curl -sS -i" in str(failure.value)


def test_report_shows_failures(app_tally: Tally) -> None:
    outcome = FuzzOutcome(tally=app_tally, problems=["live: something"])
    text = render(outcome, {"commit": "none"}, 10, 5)
    assert "**FAILED**" in text
    assert "live: something" in text
    assert all(f"`{route.path}`" in text for route in post_routes())
    assert KINDS
