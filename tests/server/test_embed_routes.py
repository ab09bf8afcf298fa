"""What the routes of dense vectors answer, over real sockets."""

import base64
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from loopback import Client, VectorOf


def unit(values: NDArray[np.float32]) -> NDArray[np.float32]:
    return (values / np.linalg.norm(values)).astype(np.float32)


@pytest.mark.parametrize("inputs", ["test", ["test"], [101, 31, 102], [[101, 31, 102]]])
def test_embed_answers_one_unit_row(client: Client, vector: VectorOf, inputs: object) -> None:
    answer = client.post("/embed", {"inputs": inputs})
    assert answer.status == 200, answer.body
    item = "test" if "test" in repr(inputs) else (101, 31, 102)
    rows = np.array(answer.json, dtype=np.float32)
    assert rows.shape == (1, 8)
    assert np.array_equal(rows[0], unit(vector(item)))


def test_texts_and_ids_may_be_mixed(client: Client, vector: VectorOf) -> None:
    rows = np.array(client.post("/embed", {"inputs": [[1, 2], "a"]}).json, dtype=np.float32)
    assert np.array_equal(rows, np.stack([unit(vector((1, 2))), unit(vector("a"))]))


def test_cut_without_normalising_is_not_rescaled(client: Client, vector: VectorOf) -> None:
    answer = client.post("/embed", {"inputs": "a", "normalize": False, "dimensions": 3})
    assert np.array_equal(np.array(answer.json[0], dtype=np.float32), vector("a")[:3])


def test_embed_all_answers_a_row_for_every_token(client: Client) -> None:
    answer = client.post("/embed_all", {"inputs": ["a b", [5]]})
    assert [len(matrix) for matrix in answer.json] == [4, 1]
    assert {len(row) for matrix in answer.json for row in matrix} == {8}


@pytest.mark.parametrize(
    ("body", "status", "kind", "fragment"),
    [
        ({"inputs": ""}, 400, "Empty", "`inputs` cannot be empty"),
        ({"inputs": []}, 400, "Empty", "`inputs` cannot be empty"),
        ({"inputs": [""]}, 400, "Empty", "(item 0)"),
        ({"inputs": [[]]}, 400, "Empty", "(item 0)"),
        ({"inputs": ["a", ""]}, 400, "Empty", "(item 1)"),
        ({}, 422, "Validation", "inputs"),
        (None, 422, "Validation", "object"),
        (5, 422, "Validation", "object"),
        ([], 422, "Validation", "object"),
        ({"inputs": 5}, 422, "Validation", "inputs"),
        ({"inputs": None}, 422, "Validation", "inputs"),
        ({"inputs": [1.5]}, 422, "Validation", "inputs[0]"),
        ({"inputs": [True]}, 422, "Validation", "inputs[0]"),
        ({"inputs": [-1]}, 422, "Validation", "position 0"),
        ({"inputs": [[1, 2], [1, 1000]]}, 422, "Validation", "(item 1)"),
        ({"inputs": [4294967296]}, 422, "Validation", "position 0"),
        ({"inputs": [10**30]}, 422, "Validation", "inputs[0]"),
        ({"inputs": ["a", 1]}, 422, "Validation", "inputs[1]"),
        ({"inputs": [1, "a"]}, 422, "Validation", "inputs[1]"),
        ({"inputs": [[1, "a"]]}, 422, "Validation", "inputs[0][1]"),
        ({"inputs": "a", "normalize": None}, 422, "Validation", "normalize"),
        ({"inputs": "a", "truncation_direction": None}, 422, "Validation", "truncation_direction"),
        ({"inputs": "a", "truncation_direction": "up"}, 422, "Validation", "truncation_direction"),
        ({"inputs": "a", "dimensions": 8.0}, 422, "Validation", "dimensions"),
        ({"inputs": "a", "dimensions": "8"}, 422, "Validation", "dimensions"),
        ({"inputs": "a", "dimensions": 0}, 422, "Validation", "should be positive"),
        ({"inputs": "a", "dimensions": 9}, 422, "Validation", "maximum embedding dimension"),
        ({"inputs": "a", "prompt_name": "nope"}, 422, "Validation", "query"),
        ({"inputs": [1], "prompt_name": "query"}, 422, "Validation", "prompt_name"),
        ({"inputs": "a", "service_tier": "gold"}, 422, "Validation", "service_tier"),
        ({"inputs": "a", "encoding_format": "int8"}, 422, "Validation", "encoding_format"),
        ({"inputs": [{"role": "user", "content": "x"}]}, 424, "Backend", "chat template"),
        ({"inputs": [{"role": "tool", "content": "x"}]}, 422, "Validation", "role"),
        ({"inputs": [{"role": "user", "content": "x", "n": 1}]}, 422, "Validation", "n"),
        ({"inputs": [[{"role": "user", "content": "x"}]]}, 424, "Backend", "chat template"),
    ],
)
def test_embed_refuses(
    client: Client, body: object, status: int, kind: str | None, fragment: str
) -> None:
    before = client.service.num_computed
    answer = client.post("/embed", body)
    assert (answer.status, answer.json["error_type"]) == (status, kind), answer.body
    assert fragment in answer.json["error"]
    assert answer.headers["content-type"] == "application/json"
    assert client.service.num_computed == before


def test_bare_input_has_no_position(client: Client) -> None:
    assert "(item" not in client.post("/embed", {"inputs": ""}).json["error"]
    assert "(item" not in client.post("/embed", {"inputs": [-1]}).json["error"]


@pytest.mark.parametrize(
    "body",
    [
        {"inputs": "a", "truncate": None, "prompt_name": None, "dimensions": None, "model": None},
        {"inputs": "   "},
        {"inputs": "\u0000"},
        {"inputs": "[SEP] <s> <|endoftext|>"},
        {"inputs": "a", "unknown": {"deep": [1, {"x": None}]}},
        {"inputs": "a", "service_tier": "priority", "user": "u"},
        {"inputs": "a", "truncation_direction": "left", "truncate": True},
    ],
)
def test_embed_accepts(client: Client, body: object) -> None:
    assert client.post("/embed", body).status == 200


def _decoded(embedding: Any, encoding: str) -> NDArray[np.float32]:  # noqa: ANN401  # of JSON
    if encoding == "float":
        return np.array(embedding, dtype=np.float32)
    data = embedding["data"] if encoding == "tensor" else embedding
    raw = data if isinstance(data, bytes) else base64.b64decode(data)
    return np.frombuffer(raw, dtype="<f4")


@pytest.mark.parametrize("encoding", ["float", "base64", "tensor", None])
@pytest.mark.parametrize("accept", [None, "application/msgpack"])
def test_encodings_hold_the_same_bits(
    client: Client, vector: VectorOf, encoding: str | None, accept: str | None
) -> None:
    headers = {"accept": accept} if accept else {}
    body = {"input": ["a", "b"], "encoding_format": encoding, "model": "anything"}
    answer = client.post("/v1/embeddings", body, **headers)
    assert answer.headers["content-type"] == (accept or "application/json")
    reply = msgspec.msgpack.decode(answer.body) if accept else answer.json
    assert (reply["object"], reply["model"]) == ("list", "tiny")
    assert reply["usage"] == {"prompt_tokens": 6, "total_tokens": 6}
    assert reply["id"].startswith("infinity-")
    for index, (text, entry) in enumerate(zip("ab", reply["data"], strict=True)):
        assert (entry["object"], entry["index"]) == ("embedding", index)
        found = _decoded(entry["embedding"], encoding or "float")
        assert found.tobytes() == unit(vector(text)).tobytes()
    if encoding == "tensor":
        assert reply["data"][0]["embedding"]["shape"] == [8]
        assert isinstance(reply["data"][0]["embedding"]["data"], bytes if accept else str)


def test_messagepack_floats_take_five_bytes(client: Client) -> None:
    answer = client.post("/embed", {"inputs": "a"}, accept="application/msgpack")
    assert len(answer.body) == 1 + 1 + 8 * 5


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"input": ""}, 400, "empty_input"),
        ({"input": []}, 400, "empty_input"),
        ({"input": None}, 422, "invalid_value"),
        ({}, 422, "invalid_value"),
        ({"input": "a", "messages": [{"role": "user", "content": "x"}]}, 422, "invalid_value"),
        ({"messages": [{"role": "user", "content": "x"}]}, 424, "unsupported_task"),
        ({"input": "a", "truncate_prompt_tokens": 0}, 422, "invalid_value"),
        ({"input": "a", "truncate_prompt_tokens": 17}, 422, "invalid_value"),
        ({"input": "a", "modality": "image"}, 422, "invalid_value"),
        ({"input": "a", "dimensions": 10000}, 422, "invalid_dimensions"),
    ],
)
def test_openai_refuses_in_its_shape(client: Client, body: object, status: int, code: str) -> None:
    answer = client.post("/v1/embeddings", body)
    assert answer.status == status, answer.body
    reply = answer.json
    assert (reply["error"]["code"], reply["code"]) == (code, status)
    assert reply["error"]["message"] == reply["message"]
    assert set(reply["error"]) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        ({"input": ""}, "`inputs` cannot be empty"),
        ({"input": ["a", ""]}, "`inputs` cannot be empty (item 1)"),
        ({"input": ["a", "\ud800"]}, "`input` holds a lone surrogate"),
        ({"input": [999999]}, "`input` token id 999999"),
        ({"input": ["a"] * 1025}, "batch size 1025"),
    ],
)
def test_openai_names_its_own_field(client: Client, body: object, fragment: str) -> None:
    error = client.post("/v1/embeddings", body).json["error"]
    assert fragment in error["message"]
    assert error["param"] == "input"


@pytest.mark.parametrize(
    ("path", "field", "ids", "place"),
    [
        ("/embed", "inputs", "[18446744073709551616]", "inputs[0]"),
        ("/embed", "inputs", "[[1,-99999999999999999999]]", "inputs[0][1]"),
        ("/v1/embeddings", "input", "[1,18446744073709551616]", "input[1]"),
        ("/decode", "ids", "[18446744073709551616]", "ids[0]"),
    ],
)
def test_ids_beyond_64_bits_are_no_floats(
    client: Client, path: str, field: str, ids: str, place: str
) -> None:
    answer = client.post(path, f'{{"{field}":{ids}}}'.encode())
    assert answer.status == 422
    assert f"`{place}`: expected an integer of the vocabulary".encode() in answer.body
    assert b"float" not in answer.body


def test_truncation_at_the_limit(client: Client) -> None:
    answer = client.post("/v1/embeddings", {"input": "a", "truncate_prompt_tokens": -1})
    assert answer.status == 200
    assert client.service.request.options.truncate is True
    assert client.service.request.options.max_tokens is None


def test_surrogate_names_the_item(client: Client) -> None:
    answer = client.post("/embed", b'{"inputs":["a","\\ud800"]}')
    assert "(item 1)" in answer.json["error"]
