"""Requests as bytes: one document written in several ways, some of them broken.

Knows nothing of routes or of what answers them.
"""

import base64
import gzip
import json
import random
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec
import zstandard
from hypothesis import strategies as st

from fuzz_documents import Document, is_plain

JSON = "application/json"
MSGPACK = "application/msgpack"
_MEDIA_TYPES = (
    *(JSON, MSGPACK, "application/x-msgpack", "application/json; charset=utf-8"),
    *("application/json;charset=latin-1", "text/plain", "", ";", "application/json;;=;charset"),
    *("APPLICATION/VND.MSGPACK", "application/jsonx", "a" * 3000, "application/json\t;q=\x7f"),
)
_CODINGS = ("", "gzip", "zstd", "x-gzip", "identity", "br", "gzip, gzip", "GZIP", "zstd;q=1")
_ACCEPTS = (
    *("", "*/*", MSGPACK, "application/msgpack;q=0.5, application/json;q=0.5", "text/html"),
    *("application/vnd.msgpack;q=nan", ",;,;q=", "application/msgpack;q=1e999", "a," * 2000),
)
_OTHER_HEADERS = (
    ("accept-encoding", ("zstd", "gzip", "*;q=0", "zstd;q=0, gzip;q=x", "identity", "," * 999)),
    ("x-request-id", ("abc", "", "é", "a" * 128, "a" * 129, "\x7f")),
    ("request-timeout-ms", ("60000", "-1", "1e3", "9" * 15, "9" * 400, "x", "\u0661")),
    ("request-deadline-ms", ("9" * 15, "9" * 16, "", "nan")),
    ("authorization", ("Bearer x", "Basic", "\xff", "Bearer " + "k" * 5000)),
    ("traceparent", ("00-" + "1" * 32 + "-" + "2" * 16 + "-01", "zz", "0" * 4000)),
    ("origin", ("http://a", "null", "\xe9")),
    ("user-agent", ("", "x" * 2000)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzRequest:
    """One POST; header names are in lower case, values latin-1."""

    path: str
    body: bytes
    headers: tuple[tuple[str, str], ...]

    def reproducer(self) -> str:
        """A command that sends exactly this."""
        named = " ".join(f"-H {shlex.quote(f'{name}: {value}')}" for name, value in self.headers)
        data = base64.b64encode(self.body).decode()
        shown = self.body if len(self.body) <= 400 else self.body[:400] + b"..."
        return (
            f"body: {shown!r}\n"
            f"base64 -d <<< {data} | curl -sS -i {named} --data-binary @- $SERVER{self.path}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Variants:
    """The ways one document was written.

    Attributes:
        alike: must all get the same status.
        others: may get any refusal.
    """

    alike: tuple[FuzzRequest, ...]
    others: tuple[FuzzRequest, ...]


Edit = tuple[str, float, bytes]
"""What to do, where (a share of the length), and with which bytes."""

_DEEDS = ("insert", "overwrite", "delete", "cut", "repeat")
_PIECES = (
    *(b"", b"", b"\xff", b"\xdd\xff\xff\xff\xff", b"\x00" * 64, b'"', b"[", b"{", b"\\ud800"),
    *(b"\xc1", b"\xed\xa0\x80", b"1e999", b"NaN"),
)
NUM_BROKEN = 4


@st.composite
def variants(draw: st.DrawFn, path: str, document: Document) -> Variants:
    """One document in JSON and MessagePack, plain, compressed and broken, under odd headers."""
    text, packed = as_json(document, is_ascii=draw(st.booleans())), as_msgpack(document)
    coding = draw(st.sampled_from(("gzip", "zstd")))
    right = [*_written(path, text, JSON, coding), *_written(path, packed, MSGPACK, coding)]
    if not right:
        return Variants(alike=(), others=())
    choice = random.Random(draw(st.integers(0, 2**32)))
    spoilt = choice.choices(right, k=NUM_BROKEN)
    broken = [replace(one, body=spoilt_bytes(one.body, choice)) for one in spoilt]
    odd = replace(right[0], headers=draw(odd_headers(right[0].headers)))
    is_comparable = is_plain(document)
    return Variants(
        alike=tuple(right) if is_comparable else (),
        others=(*(() if is_comparable else right), *broken, odd),
    )


def plain_request(path: str, document: Document) -> Sequence[FuzzRequest]:
    """The document as JSON and nothing else."""
    body = as_json(document, is_ascii=True)
    headers = (("content-type", JSON),)
    return [] if body is None else [FuzzRequest(path=path, body=body, headers=headers)]


def spoilt_bytes(body: bytes, choice: random.Random) -> bytes:
    """A copy with one to three edits, made in a hundredth of the time of drawing each of them."""
    edits = [
        (choice.choice(_DEEDS), choice.random(), choice.choice(_PIECES) or choice.randbytes(4))
        for _ in range(choice.randint(1, 3))
    ]
    return _edited(body, edits)


def _written(path: str, body: bytes | None, media_type: str, coding: str) -> Iterator[FuzzRequest]:
    if body is None:
        return
    types = (("content-type", media_type), ("accept", media_type))
    yield FuzzRequest(path=path, body=body, headers=types)
    codings = (("content-encoding", coding), ("accept-encoding", coding))
    yield FuzzRequest(path=path, body=compress(body, coding), headers=(*types, *codings))


@st.composite
def odd_headers(draw: st.DrawFn, headers: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """These headers with some of them changed and others added."""
    found = dict(headers)
    choices = [
        ("content-type", _MEDIA_TYPES),
        ("content-encoding", _CODINGS),
        ("accept", _ACCEPTS),
        *_OTHER_HEADERS,
    ]
    for name, values in draw(st.lists(st.sampled_from(choices), max_size=3)):
        latin = st.text(st.characters(min_codepoint=0x20, max_codepoint=0xFF), max_size=20)
        value = draw(st.sampled_from(values) | latin)
        # The transport itself refuses control characters.
        latin_1 = value.encode("latin-1", "replace").decode("latin-1")
        found[name] = latin_1.replace("\x7f", "").strip()
    return tuple(found.items())


@st.composite
def raw_requests(draw: st.DrawFn, path: str) -> FuzzRequest:
    """Bytes that were never a document."""
    headers = (
        ("content-type", draw(st.sampled_from((JSON, MSGPACK)))),
        ("content-encoding", draw(st.sampled_from(("identity", "gzip", "zstd")))),
    )
    return FuzzRequest(path=path, body=draw(st.binary(max_size=200)), headers=headers)


def as_json(document: Document, *, is_ascii: bool) -> bytes | None:
    """JSON, which is none where the document holds NaN or halves of a surrogate pair."""
    try:
        return json.dumps(document, ensure_ascii=is_ascii).encode("utf-8", "surrogatepass")
    except TypeError:  # bytes and the like
        return None


def as_msgpack(document: Document) -> bytes | None:
    """MessagePack, unless it cannot hold the document."""
    try:
        return msgspec.msgpack.encode(document)
    except (OverflowError, UnicodeEncodeError, TypeError):
        return None


def compress(body: bytes, coding: str) -> bytes:
    """The body under a content coding."""
    return gzip.compress(body, 1) if coding == "gzip" else zstandard.compress(body, 1)


def _edited(body: bytes, edits: Sequence[Edit]) -> bytes:
    """A copy with the edits applied one after the other."""
    for deed, share, data in edits:
        position = int(share * len(body))
        head, tail = body[:position], body[position:]
        if deed == "insert":
            body = head + data + tail
        elif deed == "overwrite":
            body = head + data + tail[len(data) :]
        elif deed == "delete":
            body = head + tail[len(data) + 1 :]
        elif deed == "cut":
            body = head
        else:
            body = body + tail
    return body
