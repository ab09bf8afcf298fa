"""Bodies are weighed before anything is built of them."""

import json
import tracemalloc

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infinity_v3.server import body_weight
from infinity_v3.server.body_weight import (
    refuse_crowded,
    refuse_many_members,
    weight_bytes,
)
from infinity_v3.server.codec import decode
from infinity_v3.server.errors import HttpError
from infinity_v3.server.negotiation import JSON_TYPE, MSGPACK_TYPES

MSGPACK_TYPE = MSGPACK_TYPES[0]
ENCODERS = {
    JSON_TYPE: lambda value: json.dumps(value).encode(),
    MSGPACK_TYPE: msgspec.msgpack.encode,
}
CROWDED: dict[str, list[object]] = {
    "lists": [[]],
    "objects": [{}],
    "pairs": [[1]],
    "named": [{"a": []}],
}
documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**31), 2**31)
    | st.floats(allow_nan=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=40,
)


@pytest.fixture
def few_values(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(body_weight, "MAX_VALUES", 1000)
    return 1000


def num_containers(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(num_containers, value.values()))
    return 1 + sum(map(num_containers, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("media_type", list(ENCODERS))
@pytest.mark.parametrize("kind", list(CROWDED))
def test_a_document_takes_no_more_than_its_weight(media_type: str, kind: str) -> None:
    body = ENCODERS[media_type]({"inputs": CROWDED[kind] * 50_000})
    tracemalloc.start()
    value = decode(body, media_type)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(value, dict)
    assert taken <= weight_bytes(body, media_type)


@pytest.mark.parametrize("media_type", list(ENCODERS))
@pytest.mark.parametrize("value", [-20, 1.5, 100_000, "ab", True])
def test_plain_values_take_little_more(media_type: str, value: object) -> None:
    body = ENCODERS[media_type]({"inputs": [value] * 50_000})
    tracemalloc.start()
    kept = decode(body, media_type)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(kept, dict)
    assert taken <= 1.5 * weight_bytes(body, media_type)


@pytest.mark.parametrize("media_type", list(ENCODERS))
@pytest.mark.parametrize("kind", list(CROWDED))
def test_too_many_lists_are_refused(few_values: int, media_type: str, kind: str) -> None:
    refuse_crowded(ENCODERS[media_type]({"inputs": CROWDED[kind] * (few_values // 3)}), media_type)
    crowded = ENCODERS[media_type]({"z": {"z": CROWDED[kind] * (few_values + 1)}})
    with pytest.raises(HttpError) as caught:
        refuse_crowded(crowded, media_type)
    assert caught.value.status == 413


@pytest.mark.usefixtures("few_values")
@pytest.mark.parametrize("media_type", list(ENCODERS))
@pytest.mark.parametrize("text", ["[{" * 5000, "深度学习" * 5000, '\\"[' * 5000, "é" * 9000])
def test_texts_may_look_like_lists(media_type: str, text: str) -> None:
    refuse_crowded(ENCODERS[media_type]({"inputs": [text, text]}), media_type)


@pytest.mark.usefixtures("few_values")
def test_what_is_no_messagepack_is_refused_as_such() -> None:
    for body in (b"\x92" * 2000, b"\x82\x90" * 2000, b"\x91" * 100 + b"\x90" * 2000):
        with pytest.raises(HttpError) as caught:
            refuse_crowded(body, MSGPACK_TYPE)
        assert caught.value.status in (400, 413)


@given(value=documents, limit=st.integers(0, 30))
@pytest.mark.parametrize("media_type", list(ENCODERS))
def test_only_crowded_documents_are_refused(media_type: str, value: object, limit: int) -> None:
    body = ENCODERS[media_type]({"inputs": value})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(body_weight, "MAX_VALUES", limit)
        try:
            refuse_crowded(body, media_type)
        except HttpError:
            members = num_containers(value) + len(msgspec.json.encode(value))
            assert members > limit
        else:
            assert num_containers({"inputs": value}) <= limit + 1


def test_quotes_in_a_text_without_end_are_looked_at_once() -> None:
    # A look at all that follows for each of them would take hours.
    endless = b"," * 100 + b'"' + b'\\"' * 2_000_000 + b"," * 100
    refuse_many_members(endless, 150)
    with pytest.raises(HttpError, match="more than 50 lists"):
        refuse_many_members(endless, 50)
