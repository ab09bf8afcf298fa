"""The decision routes over the real service: no request, however wrong, is answered with a 5xx.

The service is the real one, over a tiny checkpoint whose graph is run eagerly.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eager_laya import EagerLaya
from infinity_v3.server.exact_json import MAX_MEMBERS
from loopback import Client, running_model
from tiny_laya import LayaRecipe, make_laya_checkpoint

RECIPE = LayaRecipe(key="fuzzed", num_layers=1, head_layers=1, max_len=2048, head_max_len=1400)


@pytest.fixture(scope="module")
def laya(tmp_path_factory: pytest.TempPathFactory) -> EagerLaya:
    return EagerLaya(make_laya_checkpoint(tmp_path_factory.mktemp("laya") / RECIPE.key, RECIPE))


@pytest.fixture(scope="module")
def decider(laya: EagerLaya) -> Iterator[Client]:
    """In place of the service without a model."""
    with running_model(laya.loaded) as client:
        yield client


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
_CRITERIA = (
    st.dictionaries(st.text(max_size=4), _VALUES, max_size=4)
    | st.lists(_VALUES, max_size=4)
    | st.dictionaries(st.sampled_from(["true", "false", "True"]), _VALUES)
    | _VALUES
)
_QUESTION = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["noul", "choice", "score", "box", 3, None]),
        "instructions": _VALUES,
        "criteria": _CRITERIA,
        "labels": _VALUES,
    },
)
_BODIES = st.fixed_dictionaries(
    {},
    optional={
        "model": st.sampled_from(["jev-latest", "tiny", "other", None, 3]),
        "state": _VALUES,
        "questions": st.dictionaries(st.text(max_size=4), _QUESTION | _VALUES, max_size=3)
        | _VALUES,
        "max_len": _VALUES | st.integers(1, 100),
        "head_max_len": _VALUES | st.integers(1, 100),
        "service_tier": _VALUES,
        "assets": _VALUES,
        "unknown": _VALUES,
    },
)
_FUZZ = settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
_PATHS = ("/v1/systemone", "/", "/vertex")


def check(status: int, document: Any) -> None:  # noqa: ANN401
    assert status in {200, 404, 422}, document
    if status == 422:
        assert all(set(entry) == {"loc", "msg", "type"} for entry in document["detail"])
    elif status == 404:
        assert set(document["detail"]) == {"error_type", "message"}


@_FUZZ
@given(body=_BODIES | _VALUES)
def test_documents(decider: Client, body: object) -> None:
    answer = decider.post("/v1/systemone", json.dumps(body).encode("utf-8", "surrogatepass"))
    check(answer.status, answer.json)


@_FUZZ
@given(raw=st.binary(max_size=60))
def test_bytes(decider: Client, raw: bytes) -> None:
    answer = decider.post("/v1/systemone", raw)
    check(answer.status, answer.json)


@pytest.mark.parametrize("path", _PATHS[1:])
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=_BODIES)
def test_other_paths(decider: Client, path: str, body: dict[str, Any]) -> None:
    sent = {"instances": [body]} if path == "/vertex" else body
    answer = decider.post(path, sent)
    assert answer.status < 500, answer.body


def test_the_conformance_suite_calls_it_conformant(decider: Client, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    url = f"http://127.0.0.1:{decider.port}"
    done = subprocess.run(
        [sys.executable, "-m", "jevcompat.cli", "test", url, "--json", str(report)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-2000:]}"
    assert json.loads(report.read_text())["summary"]["verdict"] == "conformant"


def nouls(count: int) -> dict[str, object]:
    questions = {f"q{i}": {"type": "noul", "instructions": f"is it {i}?"} for i in range(count)}
    return {"state": "a state", "questions": questions}


def test_questions_of_concurrent_requests_share_a_batch(decider: Client, laya: EagerLaya) -> None:
    (model,) = decider.context.models.all()
    laya.engine.batch_sizes.clear()
    laya.engine.gate.clear()
    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(decider.post, "/v1/systemone", nouls(1))
        decider.wait_until(lambda: model.service.stats().num_pending_items == 1)
        decider.wait_until(lambda: model.service.stats().num_queued_items == 0)
        others = [pool.submit(decider.post, "/v1/systemone", nouls(k)) for k in (2, 3, 16)]
        decider.wait_until(lambda: model.service.stats().num_queued_items == 21)
        laya.engine.gate.set()
        answers = [waiting.result() for waiting in (first, *others)]
    assert [len(answer.json["answers"]) for answer in answers] == [1, 2, 3, 16]
    assert laya.engine.batch_sizes == [1, 21]


def test_errors_of_the_runtime_name_their_place(decider: Client) -> None:
    noul = {"type": "noul"}
    options = {"type": "choice", "criteria": {f"o{i}": None for i in range(40)}}
    short = {"type": "choice", "instructions": "?", "criteria": ["a", "b"]}
    body = {"state": "x", "questions": {"fine": short, "long": options}, "max_len": 64}
    (entry,) = decider.post("/v1/systemone", body).json["detail"]
    assert entry["loc"] == ["body", "questions", "long"]
    assert entry["type"] == "max_length_exceeded"
    body = {"state": "x", "questions": {"q": noul}, "head_max_len": 2048}
    (entry,) = decider.post("/v1/systemone", body).json["detail"]
    assert (entry["loc"], entry["type"]) == (["body", "head_max_len"], "value_error")


FOREIGN: list[Any] = [b"x", float("nan"), msgspec.msgpack.Ext(5, b"x"), {1: "x"}, {b"k": 1}]


@pytest.mark.parametrize("value", FOREIGN, ids=["bytes", "nan", "ext", "int-key", "bytes-key"])
@pytest.mark.parametrize("path", _PATHS[1:])
def test_what_only_messagepack_can_say_is_refused(decider: Client, path: str, value: Any) -> None:  # noqa: ANN401  # any value
    score = {"type": "score", "criteria": ["low", value]}
    for body in ({"state": "x", "questions": {"q": score}}, {"state": [value], "questions": {}}):
        sent = {"instances": [body]} if path == "/vertex" else body
        answer = decider.pack(path, sent)
        assert answer.status in {400, 422}, answer.body


def test_vertex_takes_no_half_of_a_pair_and_no_wider_number(decider: Client) -> None:
    wide, half = b'{"n":123456789012345678901234567890}', b'"\\ud800"'
    for level, state in ((half, b'"x"'), (b'"a"', half), (wide, b'"x"')):
        score = b'{"q":{"type":"score","criteria":["low",%s]}}' % level
        body = b'{"instances":[{"state":%s,"questions":%s,"more":"\\ud800"}]}' % (state, score)
        answer = decider.post("/vertex", body)
        assert answer.status in {400, 422}, answer.body


@pytest.mark.parametrize("path", _PATHS)
@pytest.mark.parametrize("is_packed", [False, True])
def test_a_crowd_is_refused(decider: Client, path: str, is_packed: bool) -> None:
    body = {"state": [0] * (MAX_MEMBERS + 1), "questions": {"q": {"type": "noul"}}}
    sent = {"instances": [body]} if path == "/vertex" else body
    answer = decider.pack(path, sent) if is_packed else decider.post(path, sent)
    if is_packed and path == "/v1/systemone":
        assert answer.status == 415
    else:
        assert answer.status == 413
        assert b"more than 250000 lists, objects and their members" in answer.body


def test_commas_in_texts_are_no_members(decider: Client) -> None:
    body = {"state": ', "' * (MAX_MEMBERS + 1), "questions": {"q": {"type": "noul"}}}
    assert decider.post("/v1/systemone", body).status == 200


def test_a_whole_number_that_cannot_be_read_says_so(decider: Client) -> None:
    body = b'{"state":[%s],"questions":{"q":{"type":"noul"}}}' % (b"9" * 4301)
    answer = decider.post("/v1/systemone", body)
    assert answer.status == 422
    (entry,) = answer.json["detail"]
    assert "a whole number has more than 4300 digits" in entry["msg"]
    assert "set_int_max_str_digits" not in entry["msg"]


def test_a_sequence_shorter_than_its_head_says_what_helps(decider: Client) -> None:
    body: dict[str, Any] = {"state": "x", "questions": {"q": {"type": "noul"}}, "max_len": 24}
    body["questions"]["q"]["instructions"] = "w " * 40
    (entry,) = decider.post("/v1/systemone", body).json["detail"]
    assert entry["type"] == "max_length_exceeded"
    assert "raise max_len, up to 2048, or lower head_max_len to below 24" in entry["msg"]
    assert decider.post("/v1/systemone", {**body, "head_max_len": 16}).status == 200
