"""What the embedding routes answer, over real sockets."""

import base64
import json
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from loopback import Client, StartServer, VectorOf

JSON = {"content-type": "application/json"}


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
    before = client.service.num_embedded
    answer = client.post("/embed", body)
    assert (answer.status, answer.json["error_type"]) == (status, kind), answer.body
    assert fragment in answer.json["error"]
    assert answer.headers["content-type"] == "application/json"
    assert client.service.num_embedded == before


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


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"{", 400),
        (b"", 400),
        (b'{"inputs":NaN}', 400),
        (b'{"inputs":"a"}x', 400),
        (b'{"inputs":"\xff"}', 400),
        (b'{"inputs":"\\ud800"}', 422),
        (b'{"inputs":["a","\\ud800"]}', 422),
        (b'{"inputs":"\\ud83d\\ude00"}', 200),
        (b'{"inputs":"a","inputs":"b"}', 200),
        (b'{"inputs":"a","user":"\\ud800"}', 200),
        (b'{"inputs":"a","prompt_name":"\\ud800"}', 422),
        (b'{"inputs":' + b"[" * 65 + b"]" * 65 + b"}", 400),
        (b'{"inputs":"a","x":' + b"[" * 70 + b"]" * 70 + b"}", 400),
        (b'{"inputs":"a","x":' + b"[" * 60 + b"]" * 60 + b"}", 200),
        (b"[" * 100_000, 400),
        (b'{"inputs":"\\ud800","x":NaN}', 400),
    ],
)
def test_json_syntax(client: Client, raw: bytes, status: int) -> None:
    answer = client.post("/embed", raw)
    assert answer.status == status, answer.body
    if status == 400:
        assert answer.json["error_type"] == "Malformed"


def test_surrogate_names_the_item(client: Client) -> None:
    answer = client.post("/embed", b'{"inputs":["a","\\ud800"]}')
    assert "(item 1)" in answer.json["error"]


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
    ("accept", "media_type"),
    [
        ("*/*", "application/json"),
        ("application/json, application/msgpack", "application/msgpack"),
        ("application/json;q=0.9, application/x-msgpack;q=0.5", "application/json"),
        ("application/msgpack;q=0", "application/json"),
        ("text/html", "application/json"),
        ("application/vnd.msgpack", "application/vnd.msgpack"),
    ],
)
def test_accept(client: Client, accept: str, media_type: str) -> None:
    for path in ("/info", "/models"):
        assert client.get(path, accept=accept).headers["content-type"] == media_type
    error = client.post("/embed", {}, accept=accept)
    assert error.headers["content-type"] == "application/json"


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


def test_decode_names_its_own_field(client: Client) -> None:
    assert "`ids` token id 999999" in client.post("/decode", {"ids": [999999]}).json["error"]


@pytest.mark.parametrize(
    ("body", "path", "choices"),
    [
        ({"input": "a", "encoding_format": "x"}, "encoding_format", "float, base64, tensor"),
        (
            {"input": "a", "truncation_direction": "x"},
            "truncation_direction",
            "Left, left, Right, right",
        ),
        ({"input": "a", "service_tier": "x"}, "service_tier", "priority, auto, default, flex"),
        (
            {"messages": [{"role": "tool", "content": "x"}]},
            "messages[0].role",
            "system, user, assistant",
        ),
    ],
)
def test_a_wrong_word_lists_the_choices(
    client: Client, body: object, path: str, choices: str
) -> None:
    error = client.post("/v1/embeddings", body).json["error"]
    assert f"`{path}`: Invalid enum value" in error["message"]
    assert error["message"].endswith(f"expected one of {choices}")
    assert error["param"] == path


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


def test_priority_and_deadline_reach_the_service(client: Client) -> None:
    client.post("/embed", {"inputs": "a", "service_tier": "priority"}, request_timeout_ms="60000")
    schedule = client.service.request.schedule
    assert schedule.is_priority
    assert schedule.deadline_s is not None
    client.post("/embed", {"inputs": "a"}, request_timeout_ms="soon")
    assert client.service.request.schedule.deadline_s is None


def test_batch_size_is_limited(start_server: StartServer) -> None:
    with start_server(model={"max_client_batch_size": 3}) as client:
        assert client.post("/embed", {"inputs": ["a"] * 3}).status == 200
        answer = client.post("/embed", {"inputs": ["a"] * 4})
    assert answer.status == 422
    assert "batch size 4 > maximum allowed batch size 3" in answer.json["error"]


def test_unsupported_kind_is_told_before_the_batch_size(start_server: StartServer) -> None:
    with start_server(model={"max_client_batch_size": 1}) as client:
        client.service.can_embed = False
        answer = client.post("/embed", {"inputs": ["a", "b"]})
    assert answer.status == 424
    assert "Model is not an embedding model" in answer.json["error"]


def test_tokenize_and_decode(client: Client) -> None:
    text = "深度学习 é"
    (tokens,) = client.post("/tokenize", {"inputs": text}).json
    assert tokens == [{"id": 7, "text": text, "special": False, "start": 0, "stop": 6}]
    assert client.post("/decode", {"ids": [1, 2]}).json == ["1 2"]
    assert client.post("/decode", {"ids": [[1], [2, 3]]}).json == ["1", "2 3"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/tokenize", {"inputs": []}, 400),
        ("/tokenize", {"inputs": [""]}, 400),
        ("/tokenize", {"inputs": [1]}, 422),
        ("/decode", {"ids": []}, 400),
        ("/decode", {"ids": [[]]}, 400),
        ("/decode", {"ids": [1000]}, 422),
        ("/decode", {"ids": [-1]}, 422),
        ("/decode", {"ids": [1, [2]]}, 422),
        ("/decode", {"ids": "a"}, 422),
    ],
)
def test_tokenize_and_decode_refuse(client: Client, path: str, body: object, status: int) -> None:
    answer = client.post(path, body)
    assert answer.status == status, answer.body
    if path == "/decode" and status == 400:
        assert "`input_ids` cannot be empty" in answer.json["error"]


def test_timing_headers(client: Client) -> None:
    headers = client.post("/embed", {"inputs": ["ab", [1, 2, 3]]}).headers
    assert headers["x-compute-type"] == "cpu+optimized"
    assert headers["x-compute-characters"] == "5"
    assert headers["x-compute-tokens"] == "6"
    assert [headers[f"x-{part}-time"] for part in ("tokenization", "queue", "inference")] == [
        "1",
        "2",
        "3",
    ]
    assert int(headers["x-total-time"]) == int(headers["x-compute-time"])
    for path, body in (("/tokenize", {"inputs": "a"}), ("/embed", {})):
        assert not [name for name in client.post(path, body).headers if "compute" in name]


@pytest.mark.parametrize(
    ("sent", "is_echoed"), [("abc", True), ("x" * 128, True), ("x" * 200, False), (None, False)]
)
def test_request_id(client: Client, sent: str | None, is_echoed: bool) -> None:
    headers = {"x_request_id": sent} if sent else {}
    for answer in (client.get("/health", **headers), client.post("/embed", {}, **headers)):
        found = answer.headers["x-request-id"]
        assert (found == sent) is is_echoed
        assert is_echoed or len(found) == 32


def test_gateway_ids_are_echoed(client: Client) -> None:
    headers = {"x-baseten-customer-request-id": "b1", "x-typesafe-request-id": "t1"}
    answer = client.request("GET", "/health", headers=headers)
    assert {name: answer.headers[name] for name in headers} == headers


def test_info(client: Client) -> None:
    info = client.get("/info").json
    assert info["model_type"] == {"embedding": {"pooling": "last_token"}}
    assert (info["served_model_name"], info["max_input_length"]) == ("tiny", 16)
    assert info["prompts"] == ["query"]
    assert info["artifact"]["target"] == "cpu-x86_64-avx2-f32"
    assert client.get("/info?model=tiny").status == 200
    assert client.get("/info?model=other").json["error_type"] == "NotFound"


def test_models_with_a_slash_in_the_name(start_server: StartServer) -> None:
    with start_server(("org/one", "two")) as client:
        assert [entry["id"] for entry in client.get("/v1/models").json["data"]] == [
            "org/one",
            "two",
        ]
        assert client.get("/v1/models/org/one").json["id"] == "org/one"
        assert client.get("/v1/models/org%2Fone").json["max_model_len"] == 16
        unknown = client.get("/v1/models/nope")
    assert unknown.status == 404
    assert unknown.json["error"]["code"] == "model_not_found"


def test_routing_between_two_models(start_server: StartServer) -> None:
    with start_server(("one", "two")) as client:
        missing = client.post("/embed", {"inputs": "a"})
        unknown = client.post("/v1/embeddings", {"input": "a", "model": "three"})
        known = client.post("/v1/embeddings", {"input": "a", "model": "two"})
    assert missing.status == 422
    assert "one, two" in missing.json["error"]
    assert unknown.json["error"]["code"] == "model_not_found"
    assert (unknown.status, known.status, known.json["model"]) == (404, 200, "two")


def test_docs_need_no_other_host(client: Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    text = page.body.decode()
    assert "http://" not in text
    assert "https://" not in text
    assert "src=" not in text


def test_openapi_lists_every_route(client: Client) -> None:
    from infinity_v3.server.app import all_routes

    document = client.get("/api-doc/openapi.json").json
    assert document["openapi"].startswith("3.1")
    listed = {(m.upper(), path) for path, ops in document["paths"].items() for m in ops}
    expected = {(route.method, route.path.replace("/*", "/{id}")) for route in all_routes()}
    assert listed == expected
    references = json.dumps(document).split('"#/components/schemas/')[1:]
    assert {text.split('"')[0] for text in references} <= set(document["components"]["schemas"])


def test_a_route_without_ids_does_not_speak_of_them(client: Client) -> None:
    answer = client.post("/tokenize", {"inputs": [2**64]})
    assert answer.status == 422
    assert "vocabulary" not in answer.json["error"]
