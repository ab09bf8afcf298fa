"""What /embed_sparse and /similarity answer, over real sockets."""

import numpy as np
import pytest

from infinity_v3.artifacts.manifest import Kind
from loopback import Client, ClientOf, StartServer, VectorOf


@pytest.fixture
def sparse(client_of: ClientOf) -> Client:
    return client_of(Kind.SPARSE)


@pytest.mark.parametrize("inputs", ["test", ["test", "b"], [5, 6], [[5, 6], "test"]])
def test_sparse_rows_hold_the_positive_components(
    sparse: Client, vector: VectorOf, inputs: list[object] | str
) -> None:
    answer = sparse.post("/embed_sparse", {"inputs": inputs})
    assert answer.status == 200, answer.body
    is_bare = isinstance(inputs, str) or isinstance(inputs[0], int)
    items = [inputs] if is_bare else inputs
    for row, item in zip(answer.json, items, strict=True):
        raw = vector(tuple(item) if isinstance(item, list) else item)
        assert [entry["index"] for entry in row] == np.flatnonzero(raw > 0).tolist()
        values = np.array([entry["value"] for entry in row], dtype=np.float32)
        assert values.tobytes() == raw[raw > 0].tobytes()


def test_sparse_values_are_written_as_float32(sparse: Client, vector: VectorOf) -> None:
    raw = vector("test")
    text = sparse.post("/embed_sparse", {"inputs": "test"}).body.decode()
    for value in raw[raw > 0]:
        assert f'"value":{np.format_float_positional(value, unique=True)}}}' in text
    packed = sparse.pack("/embed_sparse", {"inputs": "test"})
    assert packed.headers["content-type"] == "application/msgpack"
    assert packed.body.count(b"\xa5value\xca") == (raw > 0).sum()
    (row,) = packed.msgpack
    assert [entry["value"] for entry in row] == raw[raw > 0].tolist()


@pytest.mark.parametrize(
    ("body", "status", "kind", "fragment"),
    [
        ({"inputs": ""}, 400, "Empty", "`inputs` cannot be empty"),
        ({"inputs": []}, 400, "Empty", "`inputs` cannot be empty"),
        ({"inputs": ["a", ""]}, 400, "Empty", "(item 1)"),
        ({"inputs": ["a", 1]}, 422, "Validation", "inputs[1]"),
        ({"inputs": [1000]}, 422, "Validation", "position 0"),
        ({"inputs": "a", "prompt_name": "nope"}, 422, "Validation", "query"),
        ({"inputs": ["a"] * 1025}, 422, "Validation", "batch size 1025"),
        ({"inputs": [{"role": "user", "content": "x"}]}, 424, "Backend", "chat template"),
    ],
)
def test_sparse_refuses(
    sparse: Client, body: object, status: int, kind: str, fragment: str
) -> None:
    answer = sparse.post("/embed_sparse", body)
    assert (answer.status, answer.json["error_type"]) == (status, kind), answer.body
    assert fragment in answer.json["error"]


def _similarity(source: str, *sentences: str, **more: object) -> dict[str, object]:
    return {"inputs": {"source_sentence": source, "sentences": list(sentences)}, **more}


def test_similarity_answers_in_the_order_of_the_sentences(client: Client, vector: VectorOf) -> None:
    answer = client.post("/similarity", _similarity("a", "b", "a", "c d"))
    assert answer.status == 200, answer.body
    source = vector("a").astype(np.float64)
    rows = np.stack([vector(text) for text in ("b", "a", "c d")]).astype(np.float64)
    expected = rows @ source / np.linalg.norm(rows, axis=1) / np.linalg.norm(source)
    assert np.allclose(answer.json, expected, rtol=0, atol=1e-15)
    assert client.pack("/similarity", _similarity("a", "b", "a", "c d")).msgpack == answer.json
    assert answer.headers["x-compute-characters"] == "6"
    assert answer.headers["x-compute-tokens"] == "13"


def test_similarity_parameters_reach_the_service(client: Client) -> None:
    options = {"truncate": False, "truncation_direction": "left", "prompt_name": "query"}
    answer = client.post("/similarity", _similarity("a", "b", parameters=options))
    assert answer.status == 200, answer.body
    found = client.service.options
    assert (found.truncate, found.truncation_side.value) == (False, "left")
    assert found.prompt_name == "query"
    assert client.post("/similarity", _similarity("a", "b", parameters=None)).status == 200


@pytest.mark.parametrize(
    ("body", "status", "fragment"),
    [
        (_similarity("a"), 400, "`inputs.sentences` cannot be empty"),
        (_similarity("a", *["b"] * 1024), 422, "batch size 1025"),
        ({"inputs": {"sentences": ["a"]}}, 422, "source_sentence"),
        ({"inputs": {"source_sentence": "a", "sentences": "b"}}, 422, "inputs.sentences"),
        ({"inputs": {"source_sentence": "a", "sentences": [1]}}, 422, "inputs.sentences[0]"),
        ({"inputs": ["a", "b"]}, 422, "`inputs`"),
        (_similarity("a", "b", parameters={"truncation_direction": None}), 422, "parameters"),
        (_similarity("a", "b", parameters={"prompt_name": "nope"}), 422, "query"),
    ],
)
def test_similarity_refuses(client: Client, body: object, status: int, fragment: str) -> None:
    answer = client.post("/similarity", body)
    assert answer.status == status, answer.body
    assert fragment in answer.json["error"]


def test_similarity_takes_1023_sentences(start_server: StartServer) -> None:
    with start_server(model={"max_queue_tokens": 10_000}) as client:
        assert len(client.post("/similarity", _similarity("a", *["b"] * 1023)).json) == 1023
