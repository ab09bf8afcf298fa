"""Parts without sockets: codecs, negotiation, the error table, metrics text, the router."""

import asyncio
import json
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import msgspec
import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from infinity_v3.runtime.checks import check_dimensions, invalid_value, too_long
from infinity_v3.runtime.errors import ITEMS_FIELD, ErrorKind, InferenceError
from infinity_v3.server import float32
from infinity_v3.server.body import BodyGate
from infinity_v3.server.codec import check_tree, decode, encode_json, encode_msgpack
from infinity_v3.server.compression import TooLongError, deflate, inflate
from infinity_v3.server.endpoint import Document, convert
from infinity_v3.server.errors import (
    ERROR_TABLE,
    HttpError,
    HttpErrorKind,
    Shape,
    error_body,
    from_inference,
)
from infinity_v3.server.items import parse_items
from infinity_v3.server.metrics import FAILURES
from infinity_v3.server.metrics_text import Registry
from infinity_v3.server.negotiation import Coding, reply_coding, reply_media_type
from infinity_v3.server.schemas import (
    ClassifyBody,
    DecodeBody,
    EmbedAllBody,
    EmbedBody,
    EmbeddingsBody,
    EmbedSparseBody,
    PredictBody,
    PredictTokensBody,
    RerankBody,
    RoutedBody,
    SimilarityBody,
    TokenizeBody,
)
from infinity_v3.server.score_items import parse_classify, parse_predict

BODIES = (
    *(EmbedBody, EmbedAllBody, EmbedSparseBody, EmbeddingsBody, SimilarityBody),
    *(PredictBody, ClassifyBody, RerankBody, PredictTokensBody, TokenizeBody, DecodeBody),
)
TYPES = ("application/json", "application/msgpack")
REASONS = {
    "auth",
    "malformed",
    "payload",
    "media_type",
    "empty",
    "validation",
    "unsupported_task",
    "model_not_found",
    "requests_limit",
    "tokens_limit",
    "not_ready",
    "timeout",
}


def outcome(body: bytes, media_type: str, body_type: type[RoutedBody]) -> int:
    """Status of parsing a body, up to its items."""
    try:
        found = convert(decode(body, media_type), body_type)
        if isinstance(found, EmbedBody):
            parse_items(found.inputs, "inputs", max_items=1024)
        if isinstance(found, PredictBody):
            parse_predict(found.inputs, max_items=1024)
        if isinstance(found, ClassifyBody):
            parse_classify(found, max_items=1024)
    except HttpError as error:
        return error.status
    return 200


REFUSALS = {400, 422, 424}


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(TYPES), st.sampled_from(BODIES))
def test_any_bytes_are_refused_politely(
    body: bytes, media_type: str, body_type: type[RoutedBody]
) -> None:
    assert outcome(body, media_type, body_type) in {200, *REFUSALS}


_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
_keys = st.sampled_from(
    [
        *("inputs", "input", "ids", "model", "truncate", "dimensions", "normalize", "messages"),
        *("query", "texts", "documents", "top_n", "rid", "priority", "parameters", "x"),
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(_keys, _values, max_size=5), st.sampled_from(BODIES))
def test_any_json_is_refused_politely(
    value: dict[str, object], body_type: type[RoutedBody]
) -> None:
    body = json.dumps(value).encode()
    assert outcome(body, "application/json", body_type) in {200, *REFUSALS}


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300), st.sampled_from([Coding.GZIP, Coding.ZSTD]))
def test_any_compressed_bytes_are_refused_politely(data: bytes, coding: Coding) -> None:
    try:
        status = 200 if len(inflate(data, coding, 1000)) <= 1000 else 500
    except TooLongError:
        status = 413
    except HttpError as error:
        status = error.status
    assert status in {200, 400, 413}


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=5000), st.sampled_from(list(Coding)))
def test_compression_round_trip(data: bytes, coding: Coding) -> None:
    assert inflate(deflate(data, coding), coding, 5000) == data


@pytest.mark.parametrize("coding", [Coding.GZIP, Coding.ZSTD])
def test_bodies_in_several_parts(coding: Coding) -> None:
    parts = [b"{", b"", b'"inputs": ' * 400, b'"a"}']
    body = b"".join(deflate(part, coding) for part in parts)
    assert inflate(body, coding, 5000) == b"".join(parts)
    with pytest.raises(TooLongError):
        inflate(body, coding, 4000)
    with pytest.raises(HttpError, match="too early"):
        inflate(body[:-1], coding, 5000)
    with pytest.raises(HttpError):
        inflate(body + b"more", coding, 5000)
    with pytest.raises(HttpError, match="more than 64"):
        inflate(deflate(b"x", coding) * 65, coding, 5000)


def test_inflating_stops_at_the_limit() -> None:
    data = bytes(1001)
    for coding in (Coding.GZIP, Coding.ZSTD):
        body = deflate(data, coding)
        with pytest.raises(TooLongError):
            inflate(body, coding, 1000)
        assert len(inflate(body, coding, 1001)) == 1001


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=70))
def test_floats_keep_their_bits(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    from_json = np.array(json.loads(encode_json([array]))[0], dtype=np.float32)
    assert from_json.tobytes() == array.tobytes()
    packed = encode_msgpack({"x": array})
    found = np.array(msgspec.msgpack.decode(packed)["x"], dtype=np.float32)
    assert found.tobytes() == array.tobytes()


_float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(max_examples=200, deadline=None)
@given(st.lists(_float32, max_size=40))
def test_decimals_give_the_same_float32(values: list[float]) -> None:
    found = np.array(float32.shortest(values), dtype=np.float32)
    assert found.tobytes() == np.array(values, dtype=np.float32).tobytes()
    packed = [float32.pack(value) for value in values]
    assert [msgspec.msgpack.decode(data) for data in packed if data is not None] == values


@settings(max_examples=200, deadline=None)
@given(st.lists(_float32.filter(lambda value: value == 0 or abs(value) > 1e-37), max_size=40))
def test_decimals_are_as_short_as_those_of_arrays(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    assert float32.shortest(values) == json.loads(encode_json(array))


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=40))
def test_float32_changes_no_other_number(values: list[float]) -> None:
    others = [value for value in values if float32.pack(value) is None]
    assert float32.shortest(others) == others


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65535, 65536])
def test_messagepack_array_headers(count: int) -> None:
    array = np.arange(count, dtype=np.float32)
    assert msgspec.msgpack.decode(encode_msgpack(array)) == array.tolist()


def test_messagepack_matrix() -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert msgspec.msgpack.decode(encode_msgpack([matrix])) == [matrix.tolist()]


def test_json_prints_the_shortest_decimals() -> None:
    array = np.array([0.1, 1 / 3, 1.0, -0.0], dtype=np.float32)
    assert encode_json(array) == b"[0.1,0.33333334,1.0,-0.0]"


def _nested(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


def test_depth_limit() -> None:
    check_tree(_nested(64))
    with pytest.raises(HttpError, match="64"):
        check_tree(_nested(65))
    far_too_deep = b"\x91" * 100_000 + b"\x01"
    with pytest.raises(HttpError, match="nested more than 64 levels deep"):
        decode(far_too_deep, "application/msgpack")


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (None, Coding.IDENTITY),
        ("gzip, deflate, br, zstd", Coding.ZSTD),
        ("gzip;q=0.5", Coding.GZIP),
        ("zstd;q=0, *;q=1", Coding.GZIP),
        ("identity", Coding.IDENTITY),
        ("gzip;q=2", Coding.IDENTITY),
        ("zstd;q=0.1, gzip;q=0.9", Coding.GZIP),
        ("gzip;q=0.9, zstd;q=0.9", Coding.ZSTD),
        ("identity, gzip;q=0.5", Coding.IDENTITY),
        ("identity;q=0.5, gzip;q=0.5", Coding.GZIP),
        (";;;,,,q=", Coding.IDENTITY),
    ],
)
def test_reply_coding(accept: str | None, expected: Coding) -> None:
    assert reply_coding(accept) is expected


@given(st.text(max_size=60))
def test_any_accept_header_is_read(header: str) -> None:
    assert reply_media_type(header)
    assert reply_coding(header)


def test_table_covers_every_kind() -> None:
    assert set(ERROR_TABLE) == {*ErrorKind, *HttpErrorKind}
    for row in ERROR_TABLE.values():
        assert 400 <= row.status < 600
        assert row.failure is None or row.failure in FAILURES
        assert row.rejection is None or row.rejection in REASONS


_SGLANG_TYPES = {424: "server_error", 429: "overloaded_error", 503: "server_error"}
_SGLANG_TYPES |= {408: "server_error", 500: "server_error"}


@pytest.mark.parametrize("kind", [*ErrorKind, *HttpErrorKind])
def test_bodies_of_all_families(kind: ErrorKind | HttpErrorKind) -> None:
    error = HttpError(kind, "what happened", item=3, param="inputs")
    tei = json.loads(error_body(error, Shape.TEI))
    assert tei == {"error": error.message, "error_type": kind.value}
    assert tei["error"].endswith(" (item 3)")
    openai = json.loads(error_body(error, Shape.OPENAI))
    assert openai["error"]["param"] == "inputs"
    assert (openai["type"], openai["code"]) == (kind.value, error.status)
    assert json.loads(error_body(error, Shape.SGLANG)) == {
        "object": "error",
        "message": error.message,
        "type": _SGLANG_TYPES.get(error.status, "invalid_request_error"),
        "param": None,
        "code": error.status,
    }


def test_unsupported_task_is_the_clients_error() -> None:
    error = from_inference(InferenceError(ErrorKind.BACKEND, "unsupported_task", "no"))
    assert (error.status, error.nested_type) == (424, "invalid_request_error")
    failed = from_inference(InferenceError(ErrorKind.BACKEND, "engine_error", "no"))
    assert failed.nested_type == "server_error"


@pytest.mark.parametrize(("seconds", "sent"), [(None, "1"), (0, "1"), (7, "7"), (900, "60")])
def test_retry_after_is_bounded(seconds: int | None, sent: str) -> None:
    error = InferenceError(ErrorKind.OVERLOADED, "overloaded", "full", retry_after_s=seconds)
    assert from_inference(error).headers == (("retry-after", sent),)


def test_errors_name_the_field_of_the_route() -> None:
    found = from_inference(too_long(256, 600, "tokens", 0), "input")
    assert found.message == "`inputs` must have less than 256 tokens. Given: 600 (item 0)"
    assert found.param == "input"
    found = from_inference(invalid_value("`inputs` holds it", None, field=ITEMS_FIELD), "input")
    assert (found.message, found.param) == ("`input` holds it", "input")
    with pytest.raises(InferenceError) as dimensions:
        check_dimensions(0, 8)
    assert from_inference(dimensions.value, "input").param == "dimensions"
    assert from_inference(InferenceError(ErrorKind.BACKEND, "engine_error", "no")).param is None


def test_messages_never_hold_lone_surrogates() -> None:
    body = error_body(HttpError(ErrorKind.VALIDATION, "found \ud800"), Shape.TEI)
    assert json.loads(body)["error"] == "found ?"


def test_metrics_text() -> None:
    registry = Registry()
    registry.counter("requests", "Requests", model='a"b\\c\nd').add(2)
    registry.gauge("size", "Size").set(1.5)
    histogram = registry.histogram("seconds", "Seconds", (0.5, 1.0), path="x")
    for value in (0.5, 0.6, 3.0):
        histogram.observe(value)
    assert registry.render().decode() == (
        "# HELP requests Requests\n# TYPE requests counter\n"
        'requests{model="a\\"b\\\\c\\nd"} 2\n'
        "# HELP size Size\n# TYPE size gauge\nsize 1.5\n"
        "# HELP seconds Seconds\n# TYPE seconds histogram\n"
        'seconds_bucket{path="x",le="0.5"} 1\n'
        'seconds_bucket{path="x",le="1"} 2\n'
        'seconds_bucket{path="x",le="+Inf"} 3\n'
        'seconds_sum{path="x"} 4.1\nseconds_count{path="x"} 3\n'
    )


def test_same_series_is_handed_out_again() -> None:
    registry = Registry()
    registry.counter("c", "C", a="1").add()
    registry.counter("c", "C", a="1").add()
    assert b'c{a="1"} 2' in registry.render()


def test_body_budget() -> None:
    gate = BodyGate(max_bodies=3, max_bytes=100)
    with gate.enter() as alone:
        alone.hold(500)
        with gate.enter() as second, pytest.raises(HttpError) as caught:
            second.hold(1)
        assert caught.value.status == 429
    with gate.enter() as first, gate.enter() as second:
        first.hold(60)
        second.hold(40)
        assert gate.num_bytes == 100
        with pytest.raises(HttpError):
            second.hold(41)
    assert (gate.num_bodies, gate.num_bytes) == (0, 0)


def test_broken_streams_are_told_from_long_ones() -> None:
    for data, coding in ((zlib.compress(b"x"), Coding.GZIP), (b"\x28\xb5\x2f\xfd", Coding.ZSTD)):
        with pytest.raises(HttpError) as caught:
            inflate(data, coding, 10)
        assert caught.value.status == 400
    assert zstandard.ZstdDecompressor().decompress(deflate(b"x", Coding.ZSTD)) == b"x"


@pytest.mark.parametrize(
    ("accept", "is_packed"),
    [
        ("application/msgpack, */*", True),
        ("application/msgpack;q=0.5, */*;q=0.8", False),
        ("application/msgpack;q=0.9, application/*", False),
        ("application/msgpack;q=0.5, application/json;q=0.4, */*", True),
    ],
)
def test_ranges_speak_for_json_too(accept: str, is_packed: bool) -> None:
    assert (reply_media_type(accept) != "application/json") is is_packed


@pytest.mark.parametrize("body", [b'{"inputs": "\xff\xfe"}', '{"inputs": "a"}'.encode("utf-16")])
def test_what_is_no_utf_8_is_called_so(body: bytes) -> None:
    with pytest.raises(HttpError, match="not valid UTF-8 at byte") as caught:
        decode(body, "application/json")
    assert caught.value.status == 400


def test_large_documents_are_gone_over_beside_the_event_loop() -> None:
    async def scenario() -> list[bool]:
        here = threading.get_ident()
        with ThreadPoolExecutor(1) as pool:
            documents = [Document(value=None), Document(value=None, pool=pool)]
            return [await document.run(threading.get_ident) == here for document in documents]

    assert asyncio.run(scenario()) == [True, False]
