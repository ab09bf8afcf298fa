"""What holds on every route: documents, negotiation, identifiers, routing, the API page."""

import json

import pytest

from loopback import Client, StartServer


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
    # A name of XML, which nobody looks up.
    text = page.body.decode().replace("xmlns='http://www.w3.org/2000/svg'", "")
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


def test_every_body_of_the_api_page_is_a_named_object(client: Client) -> None:
    document = client.get("/api-doc/openapi.json").json
    page = client.get("/docs").body.decode()
    for path, methods in document["paths"].items():
        if "post" not in methods:
            continue
        schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        for part in schema.get("anyOf", [schema]):
            name = part["$ref"].rpartition("/")[2]
            assert document["components"]["schemas"][name]["type"] == "object"
        assert f'"{path}": {{' in page or "anyOf" in schema
