"""What /embed_all and /v1/embeddings answer for late interaction, over real sockets."""

import base64
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from infinity_v3.artifacts.manifest import Kind
from loopback import MSGPACK, Client, ClientOf, VectorOf


@pytest.fixture
def late(client_of: ClientOf) -> Client:
    return client_of(Kind.LATE_INTERACTION)


def matrix(entry: dict[str, Any], encoding: str) -> NDArray[np.float32]:
    embedding = entry["embedding"]
    if encoding == "float":
        return np.array(embedding, dtype=np.float32)
    data, shape = embedding, entry.get("shape")
    if encoding == "tensor":
        assert embedding["dtype"] == "float32"
        data, shape = embedding["data"], embedding["shape"]
    raw = data if isinstance(data, bytes) else base64.b64decode(data)
    return np.frombuffer(raw, dtype="<f4").reshape(shape)


@pytest.mark.parametrize("encoding", ["float", "base64", "tensor"])
@pytest.mark.parametrize("is_packed", [False, True])
def test_encodings_hold_the_same_matrices(
    late: Client, vector: VectorOf, encoding: str, is_packed: bool
) -> None:
    body = {"input": ["a b", "c"], "encoding_format": encoding}
    answer = late.pack("/v1/embeddings", body) if is_packed else late.post("/v1/embeddings", body)
    assert answer.status == 200, answer.body
    reply = answer.msgpack if is_packed else answer.json
    assert reply["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    for entry, count in zip(reply["data"], (4, 3), strict=True):
        expected = np.stack([vector((place,)) for place in range(count)])
        assert matrix(entry, encoding).tobytes() == expected.tobytes()
        assert ("shape" in entry) is (encoding == "base64")


def test_embed_all_in_both_encodings(late: Client) -> None:
    plain = late.post("/embed_all", {"inputs": "a b"}).json
    assert [len(rows) for rows in plain] == [4]
    (tensor,) = late.post(
        "/embed_all", {"inputs": "a b", "encoding_format": "tensor"}, accept=MSGPACK
    ).msgpack
    assert tensor["shape"] == [4, 8]
    assert np.frombuffer(tensor["data"], dtype="<f4").tobytes() == (
        np.array(plain[0], dtype=np.float32).tobytes()
    )


def test_a_prompt_chooses_the_side(late: Client) -> None:
    assert late.post("/embed_all", {"inputs": "a", "prompt_name": "query"}).status == 200
    assert late.service.options.prompt_name == "query"


def test_vectors_cannot_be_cut(late: Client) -> None:
    answer = late.post("/v1/embeddings", {"input": "a", "dimensions": 4})
    assert answer.status == 424
    assert answer.json["error"]["code"] == "unsupported_task"
    assert "dimensions" in answer.json["message"]
