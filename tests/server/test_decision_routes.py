"""What the decision routes answer and refuse, over real sockets."""

import gzip
import json
import re
from typing import Any

import msgspec
import numpy as np
import pytest
import zstandard

from fake_service import FakeService, probabilities_of_question
from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind, InferenceError
from infinity_v3.server.reply_schemas import DecideReply
from loopback import Client, ClientOf, StartServer

PATHS = ("/v1/systemone", "/v1/decide")
NOUL = {"type": "noul", "instructions": "is it late?"}
CRITERIA = {"refund": "money back", "ship": None, "größe 🙂": {"a": 1}}
CHOICE = {"type": "choice", "criteria": CRITERIA}
SCORE = {"type": "score", "criteria": ["calm", {"mood": "annoyed"}, ["angry"]]}


def body_of(**questions: object) -> dict[str, Any]:
    return {"model": "jev-latest", "state": "the order is late", "questions": questions}


def probabilities(client: Client, position: int) -> list[float]:
    """What the service without a model said to a question of the latest request."""
    request = client.service.last_decision
    assert request is not None
    found: list[float] = probabilities_of_question(request.questions[position]).tolist()
    return found


@pytest.mark.parametrize("path", PATHS)
def test_every_question_has_its_answer_in_order(decider: Client, path: str) -> None:
    answer = decider.post(path, body_of(**{"z-1": NOUL, "a b": CHOICE, "질문.1": SCORE}))
    assert answer.status == 200, answer.body
    reply = answer.json
    msgspec.convert(reply, DecideReply, strict=True)
    assert list(reply) == ["model", "answers", "usage"]
    assert reply["model"] == "tiny"
    assert list(reply["answers"]) == ["z-1", "a b", "질문.1"]
    assert reply["usage"] == {"input_tokens": 14, "output_tokens": 0}
    noul, choice, score = (probabilities(decider, i) for i in range(3))
    assert reply["answers"]["z-1"] == {
        "type": "noul",
        "noul": noul[1],
        "x_native_confidence": max(noul),
    }
    names = list(CRITERIA)
    assert reply["answers"]["a b"]["choice"] == names[int(np.argmax(choice))]
    assert reply["answers"]["a b"]["probabilities"] == dict(zip(names, choice, strict=True))
    found = reply["answers"]["질문.1"]
    assert found["legend"] == {"0": "calm", "1": {"mood": "annoyed"}, "2": ["angry"]}
    assert found["score"] == pytest.approx(sum(i * p for i, p in enumerate(score)), abs=1e-12)
    assert list(found["probabilities"]) == ["0", "1", "2"]
    assert "x_truncated" not in found


def test_a_cut_state_is_said(decider: Client) -> None:
    body = {**body_of(q=NOUL), "state": "long…"}
    assert decider.post("/v1/systemone", body).json["answers"]["q"]["x_truncated"] is True


@pytest.mark.parametrize("state", ["", "text", {}, {"a": [1, None]}, [], [{"role": "user"}]])
def test_states_of_every_form_are_taken(decider: Client, state: object) -> None:
    assert decider.post("/v1/systemone", {**body_of(q=NOUL), "state": state}).status == 200


def test_values_reach_the_model_and_come_back_as_they_were_sent(decider: Client) -> None:
    number = 123456789012345678901234567890
    raw = (
        b'{"model":"jev-latest","state":{"b":%d,"a":1e16,"c":-0.0},"questions":{"q":'
        b'{"type":"score","criteria":[{"n":%d},"x"]}}}' % (number, number)
    )
    answer = decider.post("/v1/systemone", raw)
    request = decider.service.last_decision
    assert request is not None
    assert json.dumps(request.state) == f'{{"b": {number}, "a": 1e+16, "c": -0.0}}'
    assert answer.json["answers"]["q"]["legend"] == {"0": {"n": number}, "1": "x"}


@pytest.mark.parametrize("name", [None, "tiny", "jev-latest", "jev-preview"])
def test_names_of_the_model(decider: Client, name: str | None) -> None:
    answer = decider.post("/v1/systemone", {**body_of(q=NOUL), "model": name})
    assert answer.status == 200, answer.body
    assert answer.json["model"] == "tiny"


def test_an_unknown_name_is_not_found(decider: Client) -> None:
    answer = decider.post("/v1/systemone", {**body_of(q=NOUL), "model": "other"})
    assert answer.status == 404
    assert answer.json["detail"]["error_type"] == "model_not_found"
    assert "other" in answer.json["detail"]["message"]


def test_other_models_say_that_they_do_not_decide(client: Client) -> None:
    answer = client.post("/v1/systemone", body_of(q=NOUL))
    assert answer.status == 424
    assert answer.json == {
        "detail": {
            "error_type": "unsupported_task",
            "message": "Model is not a decision model",
        }
    }


@pytest.mark.parametrize(
    ("coding", "encode"),
    [("zstd", zstandard.ZstdCompressor().compress), ("gzip", gzip.compress)],
)
def test_compressed_bodies_are_read(decider: Client, coding: str, encode: Any) -> None:  # noqa: ANN401
    data = encode(json.dumps(body_of(q=NOUL)).encode())
    assert decider.post("/v1/systemone", data, content_encoding=coding).status == 200


INVALID: dict[str, tuple[object, list[object], str]] = {
    "no object": ([], ["body"], "object_type"),
    "no state": ({"questions": {"q": NOUL}}, ["body", "state"], "missing"),
    "no questions": ({"state": ""}, ["body", "questions"], "missing"),
    "state null": ({**body_of(q=NOUL), "state": None}, ["body", "state"], "state_type"),
    "state number": ({**body_of(q=NOUL), "state": 3}, ["body", "state"], "state_type"),
    "conversation": (
        {**body_of(q=NOUL), "state": {"messages": []}},
        ["body", "state"],
        "unsupported_media",
    ),
    "assets": ({**body_of(q=NOUL), "assets": []}, ["body", "assets"], "unsupported_media"),
    "questions list": (
        {"state": "", "questions": [NOUL]},
        ["body", "questions"],
        "object_type",
    ),
    "no question": (body_of(), ["body", "questions"], "too_short"),
    "empty id": (body_of(**{"": NOUL}), ["body", "questions", ""], "too_short"),
    "question text": (body_of(q="x"), ["body", "questions", "q"], "object_type"),
    "no type": (body_of(q={}), ["body", "questions", "q", "type"], "missing"),
    "box": (
        body_of(q={"type": "box"}),
        ["body", "questions", "q", "type"],
        "unknown_question_type",
    ),
    "type number": (
        body_of(q={"type": 1}),
        ["body", "questions", "q", "type"],
        "unknown_question_type",
    ),
    "instructions number": (
        body_of(q={**NOUL, "instructions": 1}),
        ["body", "questions", "q", "instructions"],
        "instructions_type",
    ),
    "choice without criteria": (
        body_of(q={"type": "choice"}),
        ["body", "questions", "q", "criteria"],
        "object_type",
    ),
    "choice of nothing": (
        body_of(q={"type": "choice", "criteria": {}}),
        ["body", "questions", "q", "criteria"],
        "too_short",
    ),
    "choice list twice": (
        body_of(q={"type": "choice", "criteria": ["a", "a"]}),
        ["body", "questions", "q", "criteria", 1],
        "duplicate_key",
    ),
    "score map": (
        body_of(q={"type": "score", "criteria": {"0": "a"}}),
        ["body", "questions", "q", "criteria"],
        "list_type",
    ),
    "score null level": (
        body_of(q={"type": "score", "criteria": ["a", None]}),
        ["body", "questions", "q", "criteria", 1],
        "null",
    ),
    "noul other side": (
        body_of(q={**NOUL, "criteria": {"maybe": "x"}}),
        ["body", "questions", "q", "criteria", "maybe"],
        "unknown_key",
    ),
    "noul side twice": (
        body_of(q={**NOUL, "criteria": {"True": "x", "true": "y"}}),
        ["body", "questions", "q", "criteria", "true"],
        "duplicate_key",
    ),
    "noul labels alike": (
        body_of(q={**NOUL, "labels": {"true": "x", "false": " x"}}),
        ["body", "questions", "q", "labels"],
        "labels",
    ),
    "max_len 0": ({**body_of(q=NOUL), "max_len": 0}, ["body", "max_len"], "value_error"),
    "max_len true": ({**body_of(q=NOUL), "max_len": True}, ["body", "max_len"], "value_error"),
    "max_len float": ({**body_of(q=NOUL), "max_len": 64.0}, ["body", "max_len"], "value_error"),
    "model number": ({**body_of(q=NOUL), "model": 5}, ["body", "model"], "value_error"),
    "tier": (
        {**body_of(q=NOUL), "service_tier": "gold"},
        ["body", "service_tier"],
        "value_error",
    ),
}


@pytest.mark.parametrize("name", INVALID)
def test_wrong_values_are_named(decider: Client, name: str) -> None:
    body, loc, kind = INVALID[name]
    answer = decider.post("/v1/systemone", body)
    assert answer.status == 422, answer.body
    (entry,) = answer.json["detail"]
    assert (entry["loc"], entry["type"]) == (loc, kind)
    assert set(entry) == {"loc", "msg", "type"}
    is_complete = kind in {"missing", "duplicate_key", "labels", "unsupported_media"}
    assert is_complete or re.search(r"\b(found|got|Invalid enum value)\b", entry["msg"])
    assert not re.search(r"`[^`]*\b(str|int|float|bool|dict|None)\b", entry["msg"])


def test_questions_that_are_refused_are_no_predictions(decider: Client) -> None:
    def counted() -> float:
        page = decider.get("/metrics").body.decode()
        return float(page.split("\nte_predict_count ")[1].split()[0])

    before = counted()
    for body, _, _ in INVALID.values():
        assert decider.post("/v1/systemone", body).status == 422
    assert counted() == before
    assert decider.post("/v1/systemone", body_of(a=NOUL, b=NOUL)).status == 200
    assert counted() == before + 2


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"{} x",
        b"\xff",
        b'{"state": NaN, "questions": {}}',
        b'{"state": {"a": 1e999}, "questions": {}}',
        b'{"state": "\\ud800", "questions": {}}',
        b'{"state": {"\\udc00": 1}, "questions": {}}',
        b'{"state": %s, "questions": {}}' % (b"[" * 101 + b"]" * 101),
        b'{"state": %s, "questions": {}}' % (b"[" * 100_000),
    ],
)
def test_what_is_no_json_is_said_in_the_shape_of_a_wrong_value(decider: Client, raw: bytes) -> None:
    answer = decider.post("/v1/systemone", raw)
    assert answer.status == 422, answer.body
    (entry,) = answer.json["detail"]
    assert (entry["loc"], entry["type"]) == (["body"], "json_invalid")


@pytest.mark.parametrize(
    ("raw", "loc"),
    [
        (b'{"q":{"type":"noul"},"q":{"type":"noul"}}', ["body", "questions", "q"]),
        (
            b'{"q":{"type":"choice","criteria":{"a":1,"a":2}}}',
            ["body", "questions", "q", "criteria", "a"],
        ),
    ],
)
def test_ids_and_options_that_are_there_twice(
    decider: Client, raw: bytes, loc: list[object]
) -> None:
    answer = decider.post("/v1/systemone", b'{"state":{"k":1,"k":2},"questions":%s}' % raw)
    assert answer.status == 422
    (entry,) = answer.json["detail"]
    assert (entry["loc"], entry["type"]) == (loc, "duplicate_key")


def test_what_the_model_cannot_take_names_the_question(decider: Client) -> None:
    long = {"type": "choice", "criteria": {"a": "too long"}}
    answer = decider.post("/v1/systemone", body_of(ok=NOUL, bad=long))
    assert answer.status == 422
    (entry,) = answer.json["detail"]
    assert entry["loc"] == ["body", "questions", "bad"]
    assert entry["type"] == "max_length_exceeded"


def options(count: int) -> dict[str, object]:
    return {"type": "choice", "criteria": {f"o{i}": None for i in range(count)}}


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        (body_of(**{f"q{i}": NOUL for i in range(64)}), 200, None),
        (body_of(**{f"q{i}": NOUL for i in range(65)}), 422, "too_many_questions"),
        (body_of(q=options(255)), 200, None),
        (body_of(q=options(256)), 422, "too_many_options"),
        (body_of(a=options(255), b=options(255), c=NOUL), 200, None),
        (body_of(a=options(255), b=options(255), c=NOUL, d=NOUL), 422, "too_many_options"),
        (body_of(q={"type": "score", "criteria": ["x"] * 32}), 200, None),
        (body_of(q={"type": "score", "criteria": ["x"] * 33}), 422, "too_many_options"),
    ],
)
def test_limits_count_before_anything_is_computed(
    decider: Client, body: dict[str, Any], status: int, kind: str | None
) -> None:
    before = decider.service.num_computed
    answer = decider.post("/v1/systemone", body)
    assert answer.status == status, answer.body
    if kind is not None:
        assert answer.json["detail"][0]["type"] == kind
        assert decider.service.num_computed == before


def test_other_errors_have_a_type_and_a_message(decider: Client, client_of: ClientOf) -> None:
    data = json.dumps(body_of(q=NOUL)).encode()
    form = {"content-type": "multipart/form-data"}
    cases = {
        415: decider.request("POST", "/v1/systemone", data, form),
        405: decider.get("/v1/systemone"),
    }
    packed = decider.pack("/v1/systemone", body_of(q=NOUL))
    stacked = decider.post("/v1/systemone", data, content_encoding="br")
    assert (packed.status, stacked.status) == (415, 415)
    for status, answer in cases.items():
        assert answer.status == status
        assert set(answer.json["detail"]) == {"error_type", "message"}
    assert cases[415].json["detail"]["error_type"] == "unsupported_media_type"


@pytest.mark.parametrize("code", ["engine_error", "non_finite_output"])
def test_a_failing_engine_is_an_internal_error(decider: Client, code: str) -> None:
    decider.service.failure = InferenceError(ErrorKind.BACKEND, code, "it failed", item=0)
    answer = decider.post("/v1/systemone", body_of(q=NOUL))
    assert answer.status == 500
    assert answer.json["detail"]["error_type"] == "internal_error"


def test_keys_sizes_and_overload(start_server: StartServer) -> None:
    data = body_of(q=NOUL)
    with start_server(kind=Kind.DECISION, api_key="secret", payload_limit=400) as client:
        for headers in ({}, {"authorization": "Bearer wrong"}):
            refused = client.post("/v1/systemone", data, **headers)
            assert refused.status == 401
            assert refused.json["detail"]["error_type"] == "authentication_error"
        key = {"authorization": "Bearer secret"}
        assert client.post("/v1/systemone", data, **key).status == 200
        for packed in (None, "zstd"):
            big = json.dumps({**data, "state": "x" * 5000}).encode()
            coded = big if packed is None else zstandard.ZstdCompressor().compress(big)
            more = {} if packed is None else {"content_encoding": packed}
            large = client.post("/v1/systemone", coded, **key, **more)
            assert large.status == 413
            assert large.json["detail"]["error_type"] == "request_too_large"
    with start_server(service=FakeService(max_requests=0, kind=Kind.DECISION)) as client:
        busy = client.post("/v1/systemone", data)
        assert busy.status == 429
        assert busy.json["detail"]["error_type"] == "rate_limit_error"
        assert 1 <= int(busy.headers["retry-after"]) <= 60


def test_the_clients_own_request_id_comes_back(decider: Client) -> None:
    answer = decider.post("/v1/systemone", body_of(q=NOUL), x_typesafe_request_id="abc-1")
    assert answer.headers["x-typesafe-request-id"] == "abc-1"
    assert answer.headers["x-compute-tokens"] == "4"
    for sent in ({}, {"x_typesafe_request_id": "é"}):
        for body in (body_of(q=NOUL), {}):
            made = decider.post("/v1/systemone", body, **sent).headers
            assert made["x-typesafe-request-id"] == made["x-request-id"]


def test_decision_models_are_listed(decider: Client, client: Client) -> None:
    (entry,) = decider.get("/v1/models").json["models"]
    assert set(entry) == {"name", "description", "release_date"}
    assert entry["name"] == "tiny"
    assert len(entry["release_date"].split("-")) == 3
    assert decider.get("/v1/models").json["data"][0]["capabilities"] == ["decide", "tokenize"]
    assert decider.get("/info").json["model_type"] == {"decision": {"protocol": "laya"}}
    assert client.get("/v1/models").json["models"] == []


@pytest.mark.parametrize("path", ["/", "/invocations"])
def test_paths_of_the_kind_answer_in_their_own_shape_of_errors(decider: Client, path: str) -> None:
    number = 123456789012345678901234567890
    level = {"type": "score", "criteria": [{"n": number}, "x"]}
    answer = decider.post(path, body_of(q=level))
    assert answer.status == 200, answer.body
    assert answer.json["answers"]["q"]["legend"]["0"] == {"n": number}
    wrong = decider.post(path, body_of(q={"type": "box"}))
    assert wrong.status == 422
    assert wrong.json["error_type"] == "Validation"
    assert "`questions.q.type`" in wrong.json["error"]


def test_vertex_takes_decision_bodies(decider: Client) -> None:
    bodies = [body_of(q=NOUL), body_of(q=CHOICE)]
    answer = decider.post("/vertex", {"instances": bodies})
    assert answer.status == 200, answer.body
    assert [list(one["answers"]) for one in answer.json["predictions"]] == [["q"], ["q"]]
    wrong = decider.post("/vertex", {"instances": [bodies[0], {"state": "x"}]})
    assert wrong.status == 422
    assert "instance 1" in wrong.json["error"]
