"""Requests with several faults: the first check that fails answers, and the order is fixed."""

from collections.abc import Iterator, Mapping

import pytest

from edge_case import (
    EMBED,
    KEY,
    OPENAI,
    RANKER,
    SHORT,
    SLOTLESS,
    WITH_KEY,
    Headers,
    Refusal,
    assert_refused,
    invalid,
    unsupported,
)
from edge_protocol import LIMIT, slow_request
from http_client import JSON_HEADERS, HttpClient
from server_process import ServerProcess

LONG = "hello " * 598
TOO_LARGE = b"{" * (LIMIT + 1)
TEXT_TYPE = {"content-type": "text/plain"}
BROTLI = {"content-encoding": "br"}
MALFORMED = Refusal(status=400, kind="Malformed", code="malformed_body")
EMPTY = Refusal(status=400, kind="Empty", code="empty_input")
NOT_FOUND = Refusal(status=404, kind="NotFound", code="not_found")


@pytest.fixture
def client(several_server: ServerProcess) -> Iterator[HttpClient]:
    with HttpClient(several_server.base_url) as client:
        yield client


def refusal(status: int, kind: str) -> Refusal:
    return Refusal(status=status, kind=kind)


HTTP_FAULTS: Mapping[str, tuple[str, str, bytes, Headers, Refusal]] = {
    "path, method, key": ("GET", "/v1/nope", b"", {}, NOT_FOUND),
    "method, key": ("GET", EMBED, b"", {}, refusal(405, "MethodNotAllowed")),
    "key, media type, size": ("POST", EMBED, b"{", TEXT_TYPE, refusal(401, "Unauthorized")),
    "media type, size": (
        "POST",
        EMBED,
        TOO_LARGE,
        {**WITH_KEY, **TEXT_TYPE},
        refusal(415, "UnsupportedMediaType"),
    ),
    "coding, size": (
        "POST",
        EMBED,
        TOO_LARGE,
        {**WITH_KEY, **JSON_HEADERS, **BROTLI},
        refusal(415, "UnsupportedMediaType"),
    ),
    "size, syntax": (
        "POST",
        EMBED,
        TOO_LARGE,
        {**WITH_KEY, **JSON_HEADERS},
        refusal(413, "PayloadTooLarge"),
    ),
    "syntax, types": (
        "POST",
        OPENAI,
        b'{"input":5,"model":"nope"',
        {**WITH_KEY, **JSON_HEADERS},
        MALFORMED,
    ),
}


@pytest.mark.parametrize("faults", HTTP_FAULTS)
def test_what_http_says_comes_first(client: HttpClient, faults: str) -> None:
    method, path, body, headers, expected = HTTP_FAULTS[faults]
    assert_refused(client.request(method, path, body or None, headers), path, expected)


BODY_FAULTS: Mapping[str, tuple[str, Mapping[str, object], Refusal]] = {
    "type, model": (OPENAI, {"input": 5, "model": "nope"}, invalid("`input`")),
    "no model, no items": (OPENAI, {"input": []}, invalid("`model`")),
    "unknown model, no items": (
        OPENAI,
        {"input": [], "model": "nope"},
        Refusal(status=404, kind="NotFound", code="model_not_found"),
    ),
    "no items, kind": (OPENAI, {"input": [], "model": RANKER}, EMPTY),
    "no candidates, kind": (
        "/v1/rerank",
        {"query": "q", "documents": [], "model": SHORT},
        EMPTY,
    ),
    "kind, count": (
        OPENAI,
        {"input": ["a"] * 1025, "model": RANKER},
        unsupported("Model is not an embedding model"),
    ),
    "count, dimensions, empty item": (
        OPENAI,
        {"input": ["a", *[""] * 1024], "model": SHORT, "dimensions": 0},
        invalid("batch size 1025", code="batch_too_large"),
    ),
    "empty item, length": (
        OPENAI,
        {"input": [LONG, ""], "model": SHORT, "truncate": False},
        EMPTY,
    ),
    "dimensions, length": (
        OPENAI,
        {"input": [LONG], "model": SHORT, "truncate": False, "dimensions": 0},
        invalid(code="invalid_dimensions"),
    ),
    "prompt, vocabulary": (
        OPENAI,
        {"input": [[10**6]], "model": SHORT, "prompt_name": "nope"},
        invalid(code="unknown_prompt"),
    ),
    "length, queue": (
        OPENAI,
        {"input": [LONG], "model": SHORT, "truncate": False},
        invalid("must have less than 256 tokens", code="input_too_long"),
    ),
    "vocabulary, queue": (
        OPENAI,
        {"input": [[101] * 90, [10**6], [101] * 90], "model": SHORT},
        invalid("1000000", "(item 1)", code="invalid_token_id"),
    ),
    "queue": (
        OPENAI,
        {"input": [[101] * 90] * 2, "model": SHORT},
        invalid("--max-queue-tokens", code="input_too_long"),
    ),
}


@pytest.mark.parametrize("faults", BODY_FAULTS)
def test_what_the_body_says_comes_in_its_order(client: HttpClient, faults: str) -> None:
    path, body, expected = BODY_FAULTS[faults]
    assert_refused(client.post(path, body, WITH_KEY), path, expected)


@pytest.mark.parametrize(
    ("inputs", "place"),
    [
        (["a", "", ""], 1),
        (["a", "a", "", "\ud800"], 2),
        (["a", "\ud800", ""], 1),
        ([[101], [], ["a"]], 2),
        ([[101], [-1], [10**6]], 1),
        ([LONG, "a", LONG], 0),
    ],
)
def test_of_several_wrong_items_the_first_is_named(
    client: HttpClient, inputs: list[object], place: int
) -> None:
    body = {"inputs": inputs, "model": SHORT, "truncate": False}
    reply = client.post(EMBED, body, WITH_KEY)
    message = reply.body.decode()
    assert reply.status in {400, 422}
    assert f"(item {place})" in message or f"`inputs[{place}]" in message, message


BUSY = Refusal(status=429, kind="Overloaded", code="overloaded")
BUSY_FAULTS: tuple[tuple[object, Refusal], ...] = (
    ("", EMPTY),
    (["a"] * 1025, invalid("batch size", code="batch_too_large")),
    (LONG, BUSY),
    ([10**6], BUSY),
)


def test_no_slot_is_found_before_the_tokens_are_looked_at(client: HttpClient) -> None:
    with slow_request(client):
        for inputs, expected in BUSY_FAULTS:
            body = {"input": inputs, "model": SLOTLESS, "truncate": False}
            assert_refused(client.post(OPENAI, body, WITH_KEY), OPENAI, expected)


def test_the_key_is_in_no_answer(client: HttpClient) -> None:
    for headers in ({}, WITH_KEY):
        assert KEY.encode() not in client.post(OPENAI, {"input": 5}, headers).body
