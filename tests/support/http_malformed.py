"""Seeded malformed requests as bytes for a socket, and the conversation that sends them.

Knows the formats of requests only as far as it takes to break them.
"""

import errno
import gzip
import json
import random
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit

import msgspec
import zstandard

PATHS = (
    *("/embed", "/embed_all", "/v1/embeddings", "/tokenize", "/decode", "/embed_sparse"),
    *("/predict", "/v1/classify", "/predict_tokens", "/rerank", "/"),
)
FIELDS = {
    "/v1/embeddings": "input",
    "/v1/classify": "input",
    "/decode": "ids",
    "/rerank": "texts",
}
JSON_TYPE = "application/json"
MSGPACK_TYPE = "application/msgpack"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attack:
    """What is sent on one connection.

    Attributes:
        data: bytes of the request, whole or in part.
        is_cut: the client leaves without waiting for an answer.
        is_http: the head is a request that HTTP allows, so that an answer must come if the client
            waits for it. After anything else the client ends its side.
    """

    name: str
    data: bytes
    is_cut: bool = False
    is_http: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came back; `status` is None when the server only closed the connection."""

    status: int | None
    body: bytes


def attacks(seed: int, count: int) -> Iterator[Attack]:
    """As many attacks as asked for, all kinds in turn."""
    choice = random.Random(seed)
    for index in range(count):
        yield _MAKERS[index % len(_MAKERS)](choice)


def send(base_url: str, attack: Attack, *, timeout_s: float = 20.0) -> Outcome:
    """Play one attack on a connection of its own.

    Raises:
        TimeoutError: neither an answer nor the end of the connection came.
    """
    host, port = urlsplit(base_url).hostname, urlsplit(base_url).port
    with socket.create_connection((str(host), int(port or 0)), timeout=timeout_s) as connection:
        with _may_be_cut():
            connection.sendall(attack.data)
            if not attack.is_http and not attack.is_cut:
                connection.shutdown(socket.SHUT_WR)
        received: list[bytes] = []
        with _may_be_cut():
            while not attack.is_cut and (chunk := connection.recv(65536)):
                received.append(chunk)
    return _outcome(b"".join(received))


@contextmanager
def _may_be_cut() -> Iterator[None]:
    """The server may close the connection at any moment; silence is a failure."""
    try:
        yield
    except TimeoutError:
        raise
    except OSError as error:
        if error.errno not in {errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN}:
            raise


def _outcome(answer: bytes) -> Outcome:
    head, _, body = answer.partition(b"\r\n\r\n")
    words = head.split(maxsplit=2)
    is_answer = len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1].isdigit()
    return Outcome(status=int(words[1]) if is_answer else None, body=body)


def request_bytes(path: str, body: bytes, **headers: str) -> bytes:
    """A whole POST; `content_type` and the like become header names."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    named = {"host": "test", "connection": "close", "content-length": str(len(body)), **named}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    return f"POST {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1") + body


def _good(choice: random.Random) -> tuple[str, dict[str, object]]:
    path = choice.choice(PATHS)
    value: object = [[101, 102]] if path == "/decode" else ["a text", "another text"]
    return path, {FIELDS.get(path, "inputs"): value}


def _broken_json(choice: random.Random) -> Attack:
    """A document that ends early, or holds what JSON does not."""
    path, body = _good(choice)
    raw = json.dumps(body).encode()
    position = choice.randrange(1, len(raw) - 1)
    forms: Sequence[bytes] = (
        raw[:position],
        raw + b"}",
        raw + raw,
        raw[:-1] + b",}",
        raw.replace(b'"', b"'"),
        raw[:-1] + b', "dimensions": NaN}',
        raw[:-1] + b', "x": "\xff\xfe"}',
        b"\xef\xbb\xbf" + raw[:-2],
        b"[" * choice.choice((65, 1000, 100_000)),
        b'{"a":' * 1000,
        b"",
        choice.randbytes(choice.randrange(1, 400)),
    )
    return Attack(
        name="json", data=request_bytes(path, choice.choice(forms), content_type=JSON_TYPE)
    )


def _wrong_value(choice: random.Random) -> Attack:
    """A document whose fields have types or values that no route takes."""
    path, body = _good(choice)
    field = next(iter(body))
    wrong: Sequence[object] = (
        None,
        True,
        1.5,
        -1,
        {},
        {"a": 1},
        [],
        "",
        [[]],
        [""],
        [None],
        [1.5],
        [True],
        [-1],
        [10**30],
        ["a", 1],
        [1, "a"],
        [["a"]],
        [[[1]]],
        ["a" * 100, {}],
        [{"role": "nobody", "content": "x"}],
        "\ud800",
        ["ok", "\udfff"],
    )
    options: Sequence[dict[str, object]] = (
        {"dimensions": 0},
        {"truncation_direction": "Up"},
        {"prompt_name": "nope"},
        {"service_tier": "gold"},
    )
    if choice.random() < 0.2 and path in {"/embed", "/v1/embeddings"}:
        body |= choice.choice(options)
    elif choice.random() < 0.1:
        body = {}
    elif path == "/decode":
        body[field] = choice.choice([value for value in wrong if value != [-1]] + [[30522]])
    else:
        body[field] = choice.choice(wrong)
    return Attack(
        name="value", data=request_bytes(path, json.dumps(body).encode(), content_type=JSON_TYPE)
    )


def _wrong_header(choice: random.Random) -> Attack:
    """A good body under a media type, coding, length or deadline that does not fit."""
    path, body = _good(choice)
    raw = json.dumps(body).encode()
    wrong: Sequence[dict[str, str]] = (
        {},
        {"content_type": "text/html"},
        {"content_type": "application/jsonx"},
        {"content_type": "application/json; charset=latin-1"},
        {"content_type": MSGPACK_TYPE},
        {"content_type": "\xe9" * 50},
        {
            "content_type": JSON_TYPE,
            "content_encoding": choice.choice(("br", "deflate", "gzip, gzip")),
        },
        {"content_type": JSON_TYPE, "content_encoding": choice.choice(("gzip", "zstd", "x-gzip"))},
    )
    return Attack(name="header", data=request_bytes(path, raw, **choice.choice(wrong)))


def _broken_coding(choice: random.Random) -> Attack:
    """A compressed body that is cut, changed, followed by something or a bomb."""
    path, body = _good(choice)
    raw = json.dumps(body).encode() * choice.choice((1, 1, 1, 300))
    coding = choice.choice(("gzip", "zstd"))
    pack = gzip.compress if coding == "gzip" else zstandard.compress
    packed = pack(raw)
    position = choice.randrange(1, len(packed))
    forms: Sequence[bytes] = (
        packed[:position],
        packed + b"more",
        packed + packed,
        b"\x00" + packed,
        packed[:4] + choice.randbytes(8) + packed[12:],
        pack(b" " * 20_000_000),
        b"",
    )
    data = choice.choice(forms)
    return Attack(
        name="coding",
        data=request_bytes(path, data, content_type=JSON_TYPE, content_encoding=coding),
    )


def _broken_msgpack(choice: random.Random) -> Attack:
    """A MessagePack document that is cut, or holds what a request may not."""
    path, body = _good(choice)
    field = next(iter(body))
    packed = msgspec.msgpack.encode(body)
    deep: object = 1
    for _ in range(200):
        deep = [deep]
    forms: Sequence[bytes] = (
        packed[: choice.randrange(1, len(packed))],
        packed + b"\x00",
        b"\xc1",
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff" + b"\x01" * 10,
        msgspec.msgpack.encode({field: msgspec.msgpack.Ext(5, b"x")}),
        msgspec.msgpack.encode({field: b"bytes"}),
        msgspec.msgpack.encode({1: "a"}),
        b"\x81\x81\x01\x02\x03",
        msgspec.msgpack.encode({field: deep}),
        msgspec.msgpack.encode({**body, "x": deep}),
        b"\x81\xa6inputs\xa1\xff",
    )
    return Attack(
        name="msgpack", data=request_bytes(path, choice.choice(forms), content_type=MSGPACK_TYPE)
    )


def _no_http(choice: random.Random) -> Attack:
    """What no HTTP server can read."""
    forms: Sequence[bytes] = (
        choice.randbytes(choice.randrange(1, 3000)),
        b"\r\n\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: -5\r\n\r\n",
        b"POST /embed HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nabcde",
        b"POST /embed HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /embed HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST /embed HTTP/1.1\r\n" + b"x: y\r\n" * 5000 + b"\r\n",
        b"POST /embed HTTP/1.1\r\nx: " + b"y" * 1_000_000 + b"\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + choice.randbytes(60),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + choice.randbytes(200),
    )
    return Attack(name="garbage", data=choice.choice(forms), is_http=False)


def _wrong_target(choice: random.Random) -> Attack:
    """A path, method or query that no route has."""
    method = choice.choice(("POST", "PUT", "DELETE", "PATCH", "TRACE", "X-OWN"))
    path = choice.choice(
        (
            "/embed/",
            "//embed",
            "/v1/embeddings/x",
            "/%00",
            "/%ff%fe",
            "/info/../embed",
            "/v1/models/a%2Fb",
        )
    )
    head = (
        f"{method} {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    )
    return Attack(name="target", data=head.encode())


def _half_sent(choice: random.Random) -> Attack:
    """A good head, then only a part of the body it announces; the client waits or leaves."""
    path, body = _good(choice)
    raw = json.dumps(body).encode()
    whole = request_bytes(path, raw, content_type=JSON_TYPE)
    cut = whole[: -choice.randrange(1, len(raw))]
    chunked = whole.replace(b"content-length: %d" % len(raw), b"transfer-encoding: chunked")
    head, _, _ = chunked.partition(b"\r\n\r\n")
    data = choice.choice((cut, head + b'\r\n\r\n5\r\n{"inp\r\n', head + b"\r\n\r\nff\r\n{"))
    return Attack(name="half", data=data, is_cut=choice.random() < 0.5)


def _gone(choice: random.Random) -> Attack:
    """A client that leaves: before it said anything, within the head, or before the answer."""
    path, _ = _good(choice)
    body = json.dumps({FIELDS.get(path, "inputs"): ["a few words"] * 20}).encode()
    whole = request_bytes(path, body, content_type=JSON_TYPE)
    data = choice.choice((b"", whole[: choice.randrange(1, 60)], whole))
    return Attack(name="gone", data=data, is_cut=True, is_http=False)


_MAKERS: Sequence[Callable[[random.Random], Attack]] = (
    _broken_json,
    _wrong_value,
    _wrong_header,
    _broken_coding,
    _broken_msgpack,
    _no_http,
    _wrong_target,
    _half_sent,
    _gone,
)
