"""Manifests survive the codec, and no bytes make it raise anything but a refusal."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_artifact import make_manifest, make_target
from infinity_v3.artifacts.codec import artifact_id, decode_manifest, encode_manifest
from infinity_v3.artifacts.errors import RefusedError
from infinity_v3.artifacts.manifest import (
    ChatTemplate,
    Heads,
    KeptProgram,
    LateInteraction,
    Manifest,
    PairTemplate,
    ParityBounds,
    Precision,
    Prompts,
    ScoreActivation,
)

VALID = encode_manifest(make_manifest())

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["..", "/", "a\\b", "0" * 64, "infinity-artifact", "aoti"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


def test_round_trip() -> None:
    manifest = make_manifest()

    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_round_trip_of_everything_that_heads_may_hold() -> None:
    plain = make_manifest()
    heads = Heads(
        labels=("yes",),
        opposite_label="no",
        problem_type="regression",
        activation=ScoreActivation.NONE,
        late_interaction=LateInteraction(
            query_prefix_id=1, query_length=8, query_expansion_id=2, skipped_ids=(3, 4)
        ),
    )
    template = PairTemplate(
        before="Q: ", between="\nD: ", after="", adds_special_tokens=True, is_document_first=True
    )
    chat = ChatTemplate(
        file=plain.tokenizer.file,
        variables={"bos_token": "<s>", "add_generation_prompt": False, "tools": None, "n": 1},
        takes_text=True,
        takes_parts=False,
    )
    tokenizer = replace(plain.tokenizer, pair_template=template, chat_template=chat)
    manifest = replace(plain, heads=heads, tokenizer=tokenizer)

    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_equal_manifests_have_equal_bytes() -> None:
    ascending = make_manifest(prompts=Prompts(named={"a": "1", "b": "2"}))
    descending = make_manifest(prompts=Prompts(named={"b": "2", "a": "1"}))

    assert encode_manifest(ascending) == encode_manifest(descending)


def test_bytes_are_canonical() -> None:
    data = encode_manifest(make_manifest(prompts=Prompts(named={"frage": "größe: 漢 \u2028"})))

    assert data.endswith(b"}\n")
    assert "größe: 漢 \u2028".encode() in data
    assert b'"bytes":' in data
    assert b"num_bytes" not in data
    text = json.dumps(json.loads(data), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert data == text.encode() + b"\n"


def test_whole_number_in_a_float_field_is_written_as_a_float() -> None:
    target = make_target()
    bounds = ParityBounds(min_cosine=1)
    target = replace(target, parity=replace(target.parity, bounds=bounds))
    data = encode_manifest(make_manifest(targets=(target,)))

    assert b'"min_cosine":1.0' in data
    assert decode_manifest(data).targets[0].parity.bounds.min_cosine == 1.0


def test_id_is_the_digest_of_the_bytes() -> None:
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

    assert artifact_id(b"") == f"sha256:{empty}"
    assert artifact_id(VALID) != artifact_id(encode_manifest(make_manifest(name="other")))


@pytest.mark.parametrize(
    ("manifest", "message"),
    [
        (make_manifest(name="no spaces"), "artifact.json: name: expected a name"),
        (make_manifest(targets=(make_target("x", entry="y"),)), "targets[0].entry: expected"),
        (make_manifest(prompts=Prompts(named={"a": "\ud800"})), "expected valid Unicode"),
        (
            make_manifest(program=(KeptProgram(precision=Precision.INT8, files=("x",)),)),
            "program[0].files[0]: expected a path of 'files'",
        ),
    ],
)
def test_encoding_refuses_what_decoding_would(manifest: Manifest, message: str) -> None:
    with pytest.raises(RefusedError) as caught:
        encode_manifest(manifest)

    assert message in str(caught.value)


def test_infinite_bound_is_not_encoded() -> None:
    target = make_target()
    bounds = ParityBounds(max_abs=float("inf"))
    target = replace(target, parity=replace(target.parity, bounds=bounds))

    with pytest.raises(RefusedError, match="a value that JSON can hold"):
        encode_manifest(make_manifest(targets=(target,)))


def _decodes_or_refuses(data: bytes) -> None:
    try:
        manifest = decode_manifest(data)
    except RefusedError as error:
        message = str(error)
    else:
        assert encode_manifest(manifest) == data
        return
    assert message.startswith("artifact.json: ")
    assert "\n" not in message
    assert message.encode().decode() == message


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(RefusedError):
        decode_manifest(data)


@given(st.integers(0, len(VALID) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_random_edit_is_refused_or_canonical(at: int, inserted: bytes, num_removed: int) -> None:
    _decodes_or_refuses(VALID[:at] + inserted + VALID[at + num_removed :])


@given(JSON_VALUES)
def test_random_document_is_refused(document: object) -> None:
    with pytest.raises(RefusedError):
        decode_manifest(json.dumps(document).encode())


@given(st.data(), JSON_VALUES)
def test_random_value_anywhere_is_refused_or_canonical(data: st.DataObject, value: object) -> None:
    document = json.loads(VALID)
    node = document
    while True:
        keys = sorted(node) if isinstance(node, dict) else list(range(len(node)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(node[key], (dict, list)) or not node[key] or data.draw(st.booleans()):
            break
        node = node[key]
    node[key] = value
    text = json.dumps(document, sort_keys=True, separators=(",", ":"))
    _decodes_or_refuses(text.encode() + b"\n")
