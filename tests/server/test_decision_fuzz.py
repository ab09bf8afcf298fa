"""No decision request, however wrong, is answered with a 5xx or in another shape."""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loopback import Client

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
        "max_len": _VALUES,
        "head_max_len": _VALUES,
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
