"""One alternative of a row of the HTTP contract's table of edge cases, and how answers are judged.

Owns the error shapes of the routes. Knows nothing of the rows.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from http_client import HttpClient, Json
from server_process import Reply

Array = NDArray[np.float64]
Check = Callable[[HttpClient], None]
Headers = Mapping[str, str]

JSON_TYPE = "application/json"
PLAIN, SEVERAL = "plain", "several"
"""The servers: all-MiniLM-L6-v2 with default options, and several models behind a key."""

KEY = "secret"
WITH_KEY: Headers = {"authorization": f"Bearer {KEY}"}
SLOTLESS, SHORT, RANKER, CLASSIFIER = "one-slot", "org/short-queue", "ranker", "classifier"
"""Models of the second server: one request at a time, 100 queued tokens, and two other kinds."""

WIDTH = 384
MAX_TOKENS = 256
VOCAB_SIZE = 30522
NAME = "all-MiniLM-L6-v2"

EMBED = "/embed"
OPENAI = "/v1/embeddings"
OPENAI_SHAPED = ("/v1/", "/v2/", "/embeddings")
SGLANG_SHAPED = ("/v1/classify", "/classify")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeCase:
    """One alternative.

    Attributes:
        name: "edge_", the row's number, and what is particular.
        check: asks the server and fails unless it answers as the row says.
        server: which of them is asked.
    """

    name: str
    check: Check
    server: str = PLAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """An error body as its route's shape has to spell it.

    Attributes:
        kind: `error_type`, or the top-level `type` of OpenAI's shape.
        code: `error.code` of OpenAI's shape; the others have none.
        fragments: parts of the message.
        has_item: whether the message names an item; None where the row does not say.
    """

    status: int
    kind: str
    code: str | None = None
    fragments: Sequence[str] = ()
    has_item: bool | None = None


def refused(
    name: str,
    body: object,
    refusal: Refusal,
    *,
    path: str = EMBED,
    headers: Headers | None = None,
    server: str = PLAIN,
) -> EdgeCase:
    """A request that is answered with an error in the shape of its path."""

    def check(client: HttpClient) -> None:
        assert_refused(client.post(path, body, _headers(server, headers)), path, refusal)

    return EdgeCase(name=name, check=check, server=server)


def answered(
    name: str,
    body: object,
    judge: Callable[[Json], None],
    *,
    path: str = EMBED,
    headers: Headers | None = None,
    server: str = PLAIN,
) -> EdgeCase:
    """A request that is answered with 200; `judge` looks at the decoded JSON."""

    def check(client: HttpClient) -> None:
        judge(ask(client, path, body, _headers(server, headers)))

    return EdgeCase(name=name, check=check, server=server)


def _headers(server: str, headers: Headers | None) -> Headers:
    return {**(WITH_KEY if server == SEVERAL else {}), **(headers or {})}


def ask(client: HttpClient, path: str, body: object, headers: Headers | None = None) -> Json:
    """The decoded answer of a request that succeeds."""
    reply = client.post(path, body, headers)
    assert reply.status == 200, reply.body[:500]
    assert reply.headers["content-type"] == JSON_TYPE
    return reply.json()


def embed(client: HttpClient, inputs: object, **options: object) -> Array:
    """Rows of `/embed`."""
    return np.array(ask(client, EMBED, {"inputs": inputs, **options}), dtype=np.float64)


def unit(rows: Array) -> Array:
    """Rows of length 1."""
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True))


def assert_near(found: Array, expected: object, *, atol: float) -> None:
    """Every component is as near as that."""
    wanted = np.asarray(expected)
    assert found.shape[-1] == wanted.shape[-1], (found.shape, wanted.shape)
    difference = np.abs(found - wanted)
    assert difference.max() <= atol, f"max {difference.max():.3g} mean {difference.mean():.3g}"


def has_unit_rows(count: int, width: int = WIDTH) -> Callable[[Json], None]:
    """Judge of `/embed` and `/v1/embeddings`: so many rows of length 1."""

    def judge(answer: Json) -> None:
        rows = [entry["embedding"] for entry in answer["data"]] if "data" in answer else answer
        matrix = np.array(rows, dtype=np.float64)
        assert matrix.shape == (count, width)
        assert_near(np.linalg.norm(matrix, axis=1)[None], np.ones(count), atol=1e-6)

    return judge


def assert_refused(reply: Reply, path: str, refusal: Refusal) -> None:
    """Status, content type, body shape, type, code and message of an error."""
    assert reply.status == refusal.status, (reply.status, reply.body[:500])
    assert reply.headers["content-type"] == JSON_TYPE
    message = _message(reply.json(), path, refusal)
    missing = [part for part in refusal.fragments if part not in message]
    assert not missing, f"{missing} not in {message!r}"
    if refusal.has_item is not None:
        assert message.endswith(")") == refusal.has_item, message


def _message(answer: Json, path: str, refusal: Refusal) -> str:
    if path.startswith(SGLANG_SHAPED):
        return _sglang_message(answer, refusal)
    if path.startswith(OPENAI_SHAPED):
        return _openai_message(answer, refusal)
    assert set(answer) == {"error", "error_type"}
    assert answer["error_type"] == refusal.kind
    return str(answer["error"])


def _sglang_message(answer: Json, refusal: Refusal) -> str:
    assert set(answer) == {"object", "message", "type", "param", "code"}
    assert (answer["object"], answer["param"], answer["code"]) == ("error", None, refusal.status)
    kinds = {429: "overloaded_error", 500: "server_error", 503: "server_error"}
    assert answer["type"] == kinds.get(refusal.status, "invalid_request_error")
    return str(answer["message"])


def _openai_message(answer: Json, refusal: Refusal) -> str:
    assert set(answer) == {"error", "message", "type", "code"}
    nested = answer["error"]
    assert set(nested) == {"message", "type", "param", "code"}
    assert (answer["type"], answer["code"]) == (refusal.kind, refusal.status)
    assert nested["message"] == answer["message"]
    assert refusal.code in {None, nested["code"]}, nested["code"]
    return str(answer["message"])


EMPTY = Refusal(
    status=400, kind="Empty", code="empty_input", fragments=("`inputs` cannot be empty",)
)


def invalid(*fragments: str, code: str = "invalid_value", has_item: bool | None = None) -> Refusal:
    """A 422 of the type Validation."""
    return Refusal(status=422, kind="Validation", code=code, fragments=fragments, has_item=has_item)


def unsupported(*fragments: str) -> Refusal:
    """A 424 for a model that cannot do this."""
    return Refusal(status=424, kind="Backend", code="unsupported_task", fragments=fragments)
