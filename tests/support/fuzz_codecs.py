"""Codecs fed with any bytes, against other implementations of the same formats.

Knows nothing of routes.
"""

import gzip
import json
from collections.abc import Callable, Mapping

import msgspec
import numpy as np
import zstandard

from fuzz_documents import Document
from fuzz_requests import JSON, MSGPACK
from infinity_v3.server.codec import check_tree, decode, encode_msgpack
from infinity_v3.server.compression import TooLongError, inflate
from infinity_v3.server.errors import HttpError
from infinity_v3.server.negotiation import (
    Coding,
    reply_coding,
    reply_media_type,
    request_coding,
    request_media_type,
)

INFLATED_LIMIT = 4096
_REFUSED = object()


def check_json(body: bytes) -> None:
    """Any bytes are a document or are refused with 400, as a strict reader refuses them."""
    found = _outcome(lambda: decode(body, JSON))
    expected = _strict_json(body)
    assert (found is _REFUSED) == (expected is _REFUSED), f"json {body!r}: {found!r} {expected!r}"
    if found is not _REFUSED:
        assert _is_same(found, expected), f"json {body!r}: {found!r} is not {expected!r}"
        _outcome(lambda: check_tree(found))


def check_msgpack(body: bytes) -> None:
    """Any bytes are a document or are refused with 400; what is read writes back as the same."""
    found = _outcome(lambda: decode(body, MSGPACK))
    if found is not _REFUSED:
        _outcome(lambda: check_tree(found))
        written = msgspec.msgpack.encode(found)
        again = decode(written, MSGPACK)
        assert _is_same(again, found), f"msgpack {body!r}: {found!r} became {again!r}"


def check_gzip(body: bytes) -> None:
    """Inflates what the library of the language inflates."""
    found = _inflated(body, Coding.GZIP)
    if isinstance(found, bytes):
        assert gzip.decompress(body) == found, f"gzip {body!r}"
        assert len(found) <= INFLATED_LIMIT, f"gzip {body!r} gave {len(found)} bytes"


def check_zstd(body: bytes) -> None:
    """Inflates what the library's own streaming reader inflates."""
    found = _inflated(body, Coding.ZSTD)
    if isinstance(found, bytes):
        reader = zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True)
        assert reader.read(INFLATED_LIMIT + 1) == found, f"zstd {body!r}"
        assert len(found) <= INFLATED_LIMIT, f"zstd {body!r} gave {len(found)} bytes"


def check_deflated(body: bytes) -> None:
    """What was deflated elsewhere inflates to itself, up to the limit and no further."""
    for coding, data in (
        (Coding.GZIP, gzip.compress(body)),
        (Coding.ZSTD, zstandard.compress(body)),
        (Coding.IDENTITY, body),
    ):
        found = _inflated(data, coding)
        is_long = len(body) > INFLATED_LIMIT and coding is not Coding.IDENTITY
        assert found is TooLongError if is_long else found == body, f"{coding} of {body!r}"


def check_floats(body: bytes) -> None:
    """Float32 arrays written as MessagePack read back bit for bit."""
    array = np.frombuffer(body[: len(body) // 4 * 4], dtype="<f4")
    again = msgspec.msgpack.decode(encode_msgpack(array))
    assert np.array_equal(np.asarray(again, dtype=np.float32), array, equal_nan=True), body


def check_headers(body: bytes) -> None:
    """Any header value chooses a format or is refused with 415."""
    value = body.decode("latin-1")
    _outcome(lambda: request_media_type(value), 415)
    _outcome(lambda: request_coding(value), 415)
    assert reply_coding(value) in set(Coding)
    assert "/" in reply_media_type(value)


CODEC_CHECKS: Mapping[str, Callable[[bytes], None]] = {
    "json": check_json,
    "msgpack": check_msgpack,
    "gzip": check_gzip,
    "zstd": check_zstd,
    "deflated": check_deflated,
    "floats": check_floats,
    "headers": check_headers,
}


def _outcome(call: Callable[[], object], status: int = 400) -> object:
    """What a call gives, or that it refused with that status; anything else propagates."""
    try:
        return call()
    except HttpError as error:
        if error.status != status:
            raise AssertionError(f"refused with {error.status}: {error.message}") from error
        return _REFUSED


def _inflated(body: bytes, coding: Coding) -> object:
    try:
        return _outcome(lambda: inflate(body, coding, INFLATED_LIMIT))
    except TooLongError:
        return TooLongError


def _strict_json(body: bytes) -> object:
    def refuse(name: str) -> object:
        raise ValueError(name)

    try:
        return json.loads(body.decode("utf-8"), parse_constant=refuse)
    except (ValueError, RecursionError):
        return _REFUSED


def _is_same(left: Document, right: Document) -> bool:
    """Equal as documents; huge integers may have become floats, NaN is itself."""
    if isinstance(left, dict) and isinstance(right, dict):
        return len(left) == len(right) and all(
            _is_same(*pair) for pair in zip(left.values(), right.values(), strict=True)
        )
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(
            _is_same(*pair) for pair in zip(left, right, strict=True)
        )
    if isinstance(left, float) or isinstance(right, float):
        return bool(left == right or left != left or float(left) == float(right))
    return bool(left == right)
