"""Rows 31 to 37 and 47: /v1/embeddings."""

import base64
from collections.abc import Iterator, Mapping
from itertools import product

import msgspec
import numpy as np

from edge_case import (
    EMPTY,
    MAX_TOKENS,
    NAME,
    OPENAI,
    WIDTH,
    EdgeCase,
    answered,
    has_unit_rows,
    invalid,
    refused,
    unsupported,
)
from http_client import HttpClient, Json
from server_process import Reply

MESSAGES = [{"role": "user", "content": "hello"}]
ENCODINGS = ("float", "base64", "tensor")
MEDIA_TYPES = ("application/json", "application/msgpack")


def openai_cases() -> Iterator[EdgeCase]:
    """Every alternative of the rows."""
    yield refused("edge_31_empty", {"input": ""}, EMPTY, path=OPENAI)
    yield refused("edge_31_alias", {"input": ""}, EMPTY, path="/embeddings")
    yield from _models()
    yield from _wrong()
    yield from _fine()
    text_only = unsupported()
    yield refused("edge_34_messages", {"messages": MESSAGES}, text_only, path=OPENAI)
    yield EdgeCase(name="edge_35_six_replies", check=_six_replies)
    yield EdgeCase(name="edge_37_limit", check=_cut_at_limit)


def _models() -> Iterator[EdgeCase]:
    def judge(answer: Json) -> None:
        assert answer["model"] == NAME

    named: Mapping[str, Mapping[str, object]] = {
        "absent": {},
        "null": {"model": None},
        "any": {"model": "gpt-9"},
        "with_slash": {"model": "org/name"},
    }
    for name, field in named.items():
        yield answered(f"edge_32_{name}", {"input": "a", **field}, judge, path=OPENAI)


def _wrong() -> Iterator[EdgeCase]:
    bodies: Mapping[str, Mapping[str, object]] = {
        "33_input_and_messages": {"input": "a", "messages": MESSAGES},
        "33_input_null": {"input": None},
        "33_neither": {},
        "36_int8": {"input": "a", "encoding_format": "int8"},
        "37_0": {"input": "a", "truncate_prompt_tokens": 0},
        "37_257": {"input": "a", "truncate_prompt_tokens": MAX_TOKENS + 1},
        "47_gold": {"input": "a", "service_tier": "gold"},
    }
    for name, body in bodies.items():
        yield refused(f"edge_{name}", body, invalid(), path=OPENAI)


def _fine() -> Iterator[EdgeCase]:
    fields: Mapping[str, Mapping[str, object]] = {
        "36_null": {"encoding_format": None},
        "36_absent": {},
        "37_minus_1": {"truncate_prompt_tokens": -1},
        "47_priority": {"service_tier": "priority"},
    }
    for name, field in fields.items():
        body = {"input": ["a", "b"], **field}
        yield answered(f"edge_{name}", body, has_unit_rows(2), path=OPENAI)


def _six_replies(client: HttpClient) -> None:
    found: list[list[bytes]] = []
    for encoding, accept in product(ENCODINGS, MEDIA_TYPES):
        body = {"input": ["What is Deep Learning?", "test"], "encoding_format": encoding}
        reply = client.post(OPENAI, body, {"accept": accept})
        assert reply.headers["content-type"] == accept
        entries = decoded(reply)["data"]
        assert [entry["index"] for entry in entries] == [0, 1]
        found.append([bits(entry["embedding"]) for entry in entries])
    assert [len(row) for row in found[0]] == [4 * WIDTH] * 2
    assert all(rows == found[0] for rows in found)


def _cut_at_limit(client: HttpClient) -> None:
    text = "hello " * 300
    whole = decoded(client.post(OPENAI, {"input": text, "truncate_prompt_tokens": -1}))
    assert whole["usage"]["total_tokens"] == MAX_TOKENS
    part = decoded(client.post(OPENAI, {"input": text, "truncate_prompt_tokens": 12}))
    assert part["usage"]["total_tokens"] == 12


def decoded(reply: Reply) -> Json:
    """A reply in either format."""
    assert reply.status == 200, reply.body[:300]
    is_json = reply.headers["content-type"] == "application/json"
    return reply.json() if is_json else msgspec.msgpack.decode(reply.body)


def bits(vector: Json) -> bytes:
    """Little-endian float32 of one vector, whatever encoding it came in."""
    if isinstance(vector, list):
        return np.array(vector, dtype="<f4").tobytes()
    if isinstance(vector, str):
        return base64.b64decode(vector, validate=True)
    assert (vector["dtype"], vector["shape"]) == ("float32", [WIDTH])
    data = vector["data"]
    return data if isinstance(data, bytes) else base64.b64decode(data, validate=True)
