"""Rows 38 to 49, 53 and 54: bodies, methods, keys, models, limits, identifiers, pages."""

import gzip
import http.client
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urljoin, urlsplit

import msgspec
import zstandard

from edge_case import (
    EMBED,
    KEY,
    OPENAI,
    SEVERAL,
    SHORT,
    SLOTLESS,
    WITH_KEY,
    EdgeCase,
    Headers,
    Refusal,
    answered,
    ask,
    assert_refused,
    has_unit_rows,
    invalid,
    refused,
)
from http_client import JSON_HEADERS, HttpClient, Json
from http_metrics import read_metrics, series, wait_for, wait_until_idle

GOOD = b'{"inputs":"test"}'
LIMIT = 16_777_216
SLOW_BODY = msgspec.json.encode(
    {"model": SLOTLESS, "inputs": [[101, *range(2000, 2254), 102]] * 1024}
)
OPEN_PATHS = ("/health", "/ping", "/", "/ready", "/metrics", "/docs")
REFERENCE = re.compile(r"""(?:src|href|action)\s*=\s*["']([^"'#]+)""")
ADDRESS = re.compile(r"(?:https?:)?//[a-z0-9.-]+\.[a-z]+[^\s\"'<>)]*", re.IGNORECASE)
NAMESPACES = ("http://www.w3.org/",)
"""Names that look like addresses; nobody fetches them."""


def protocol_cases() -> Iterator[EdgeCase]:
    """Every alternative of the rows."""
    yield from _media_types()
    yield from _malformed()
    yield from _paths()
    yield from _sizes()
    yield from _codings()
    yield from _keys()
    yield EdgeCase(name="edge_45_preflight", check=_preflight)
    yield from _models()
    yield EdgeCase(name="edge_48_one_slot", check=_one_slot, server=SEVERAL)
    yield from _queue()
    yield from _request_ids()
    yield EdgeCase(name="edge_54_docs", check=_docs)


def _media_types() -> Iterator[EdgeCase]:
    for name, headers in {"absent": {}, "plain": {"content-type": "text/plain"}}.items():
        yield _raw(f"38_{name}", GOOD, headers, Refusal(status=415, kind="UnsupportedMediaType"))


def _malformed() -> Iterator[EdgeCase]:
    bodies = {"brace": b"{", "nothing": b"", "nan": b'{"inputs":NaN}'}
    for name, body in bodies.items():
        yield _raw(f"39_{name}", body, JSON_HEADERS, Refusal(status=400, kind="Malformed"))


def _raw(name: str, body: bytes, headers: Headers, refusal: Refusal) -> EdgeCase:
    """A POST with exactly these headers."""

    def check(client: HttpClient) -> None:
        assert_refused(client.request("POST", EMBED, body, headers), EMBED, refusal)

    return EdgeCase(name=f"edge_{name}", check=check)


def _paths() -> Iterator[EdgeCase]:
    def wrong_method(client: HttpClient) -> None:
        reply = client.get(EMBED)
        assert_refused(reply, EMBED, Refusal(status=405, kind="MethodNotAllowed"))
        assert reply.headers["allow"] == "POST"

    yield EdgeCase(name="edge_40_get", check=wrong_method)
    unknown = Refusal(status=404, kind="NotFound", code="not_found")
    yield refused("edge_40_nope", GOOD, unknown, path="/nope")
    yield refused("edge_40_v1_nope", GOOD, unknown, path="/v1/nope")

    def trailing_slash(client: HttpClient) -> None:
        assert_refused(client.get("/embed/"), EMBED, unknown)

    yield EdgeCase(name="edge_40_slash", check=trailing_slash)


def _sizes() -> Iterator[EdgeCase]:
    too_large = Refusal(
        status=413, kind="PayloadTooLarge", fragments=(str(LIMIT), "--payload-limit")
    )

    def one_more(client: HttpClient) -> None:
        body = b'{"inputs":"' + b"a" * (LIMIT + 1 - len(b'{"inputs":""}')) + b'"}'
        assert len(body) == LIMIT + 1
        assert_refused(client.post(EMBED, body), EMBED, too_large)

    def bomb(client: HttpClient) -> None:
        body = gzip.compress(b" " * 20_000_000)
        assert len(body) < 25_000
        reply = client.post(EMBED, body, {"content-encoding": "gzip"})
        assert_refused(reply, EMBED, too_large)

    yield EdgeCase(name="edge_41_one_more", check=one_more)
    yield EdgeCase(name="edge_41_bomb", check=bomb)


def _codings() -> Iterator[EdgeCase]:
    packed = zstandard.compress(GOOD)
    broken = Refusal(status=400, kind="Malformed")
    zstd = {"content-encoding": "zstd"}
    yield refused("edge_42_corrupt", packed[:-3] + b"xyz", broken, headers=zstd)
    yield answered("edge_42_zstd", packed, has_unit_rows(1), headers=zstd)

    def brotli(client: HttpClient) -> None:
        reply = client.post(EMBED, packed, {"content-encoding": "br"})
        assert_refused(reply, EMBED, Refusal(status=415, kind="UnsupportedMediaType"))
        assert reply.headers["accept-encoding"] == "gzip, zstd"

    yield EdgeCase(name="edge_42_brotli", check=brotli)


def _keys() -> Iterator[EdgeCase]:
    wrong: Mapping[str, tuple[Headers, str]] = {
        "none": ({}, "key"),
        "wrong": ({"authorization": "Bearer wrong"}, "wrong"),
        "bare": ({"authorization": KEY}, "Bearer"),
    }
    for name, (headers, fragment) in wrong.items():
        for path in (EMBED, OPENAI):
            yield _without_key(f"43_{name}{path.replace('/', '_')}", path, headers, fragment)
    for path in OPEN_PATHS:
        yield _is_open(path)


def _without_key(name: str, path: str, headers: Headers, fragment: str) -> EdgeCase:
    refusal = Refusal(
        status=401, kind="Unauthorized", code="invalid_api_key", fragments=(fragment,)
    )

    def check(client: HttpClient) -> None:
        reply = client.post(path, GOOD, headers)
        assert_refused(reply, path, refusal)
        assert reply.headers["www-authenticate"] == "Bearer"
        assert KEY not in reply.body.decode()

    return EdgeCase(name=f"edge_{name}", check=check, server=SEVERAL)


def _is_open(path: str) -> EdgeCase:
    def check(client: HttpClient) -> None:
        assert client.get(path).status == 200

    name = path.strip("/") or "root"
    return EdgeCase(name=f"edge_44_{name}", check=check, server=SEVERAL)


def _preflight(client: HttpClient) -> None:
    headers = {
        "origin": "https://app.example",
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    reply = client.request("OPTIONS", EMBED, headers=headers)
    assert reply.status == 204
    assert "authorization" in reply.headers["access-control-allow-headers"].split(", ")


def _models() -> Iterator[EdgeCase]:
    names = f"{SLOTLESS}, {SHORT}"
    missing = invalid("`model`", names)
    yield refused("edge_46_none", {"input": "a"}, missing, path=OPENAI, server=SEVERAL)
    unknown = Refusal(status=404, kind="NotFound", code="model_not_found", fragments=("gpt-9",))
    body = {"input": "a", "model": "gpt-9"}
    yield refused("edge_46_unknown", body, unknown, path=OPENAI, server=SEVERAL)

    def judge(answer: Json) -> None:
        assert answer["model"] == SHORT

    known = {"input": "a", "model": SHORT}
    yield answered("edge_46_known", known, judge, path=OPENAI, server=SEVERAL)


def _one_slot(client: HttpClient) -> None:
    with slow_request(client):
        reply = client.post(EMBED, {"model": SLOTLESS, "inputs": "a"}, WITH_KEY)
        fragments = ("Model is overloaded", "--max-concurrent-requests")
        assert_refused(reply, EMBED, Refusal(status=429, kind="Overloaded", fragments=fragments))
        assert 1 <= int(reply.headers["retry-after"]) <= 60
        assert client.get("/health").status == 200


@contextmanager
def slow_request(client: HttpClient) -> Iterator[None]:
    """A request that is being computed; its client leaves at the end of the block."""
    wait_until_idle(client)
    connection = http.client.HTTPConnection(urlsplit(client.base_url).netloc, timeout=60)
    try:
        connection.request("POST", EMBED, SLOW_BODY, {**JSON_HEADERS, **WITH_KEY})
        wait_for(client, f'infinity_requests_in_flight{{model="{SLOTLESS}"', 1)
        yield
    finally:
        connection.close()


def _queue() -> Iterator[EdgeCase]:
    never = {"model": SHORT, "inputs": "hello " * 198}
    yield refused("edge_49_never", never, invalid("--max-queue-tokens"), server=SEVERAL)
    yield EdgeCase(name="edge_49_many", check=_many, server=SEVERAL)


def _many(client: HttpClient) -> None:
    counter = f'infinity_tokens_total{{model="{SHORT}"'
    before = series(read_metrics(client), counter)
    with ThreadPoolExecutor(12) as pool:
        crowds = list(pool.map(_crowd, [client.base_url] * 12))
    statuses = [status for crowd in crowds for status in crowd]
    assert set(statuses) == {200, 429}
    wait_for(client, counter, before + 60 * statuses.count(200))
    computed = series(read_metrics(client), counter) - before
    assert computed == 60 * statuses.count(200), "a refused request was computed in part"
    ask(client, EMBED, {"model": SHORT, "inputs": "a"}, WITH_KEY)


def _crowd(base_url: str) -> list[int]:
    """Ask for 60 tokens in two items, again and again."""
    statuses = []
    with HttpClient(base_url) as client:
        for _ in range(10):
            reply = client.post(EMBED, {"model": SHORT, "inputs": ["hello " * 28] * 2}, WITH_KEY)
            statuses.append(reply.status)
            if reply.status == 429:
                assert 1 <= int(reply.headers["retry-after"]) <= 60
                assert b"--max-queue-tokens" in reply.body
    return statuses


def _request_ids() -> Iterator[EdgeCase]:
    sent: Mapping[str, Headers] = {
        "echoed": {"x-request-id": "abc"},
        "too_long": {"x-request-id": "a" * 200},
        "absent": {},
    }
    for name, headers in sent.items():
        for inputs in ("a", ""):
            yield _request_id(name, headers, inputs)


def _request_id(name: str, headers: Headers, inputs: str) -> EdgeCase:
    def check(client: HttpClient) -> None:
        first, second = (
            client.post(EMBED, {"inputs": inputs}, headers).headers["x-request-id"]
            for _ in range(2)
        )
        if name == "echoed":
            assert first == second == "abc"
        else:
            assert first != second
            assert re.fullmatch("[0-9a-f]{32}", first)

    kind = "answer" if inputs else "error"
    return EdgeCase(name=f"edge_53_{name}_{kind}", check=check)


def _docs(client: HttpClient) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    assert _other_hosts(text) == []
    for path in REFERENCE.findall(text):
        if path.startswith("data:"):
            continue
        asset = client.get(urlsplit(urljoin("/docs", path)).path)
        assert asset.status == 200, path
        assert _other_hosts(asset.body.decode(errors="replace")) == [], path


def _other_hosts(text: str) -> Sequence[str]:
    return [found for found in ADDRESS.findall(text) if not found.startswith(NAMESPACES)]
