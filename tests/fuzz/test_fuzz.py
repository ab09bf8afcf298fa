"""The short form of the fuzz campaigns; `make fuzz` runs the long one against real engines."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from fake_engine import FakeEngine
from fuzz_app import KINDS
from fuzz_campaigns import Budget, Tally, fuzz_app, fuzz_asks, fuzz_codecs
from fuzz_checks import FuzzAnswer, FuzzFailure, check_answer
from fuzz_codecs import CODEC_CHECKS
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
    # No model here decides; tests/server/test_decision_service.py asks one that does.
    assert paths - answered == {"/v1/decide", "/v1/systemone"}
    assert paths - refused == set()


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
    text = render(outcome, {"commit": "none"}, 10)
    assert "**FAILED**" in text
    assert "live: something" in text
    assert all(f"`{route.path}`" in text for route in post_routes())
    assert KINDS
