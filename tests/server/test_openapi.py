"""The API document: exact about bodies, statuses, headers and replies."""

import json
from typing import Any

import pytest

from infinity_v3.artifacts.manifest import Kind
from infinity_v3.runtime.errors import ErrorKind
from infinity_v3.server import error_schemas
from infinity_v3.server.errors import ERROR_TABLE, HttpErrorKind
from infinity_v3.server.openapi import openapi_document
from infinity_v3.server.schemas import EmbeddingsBody, RerankBody, ScoreBody
from loopback import Answer, ClientOf

DOCUMENT: dict[str, Any] = json.loads(openapi_document())
COMPONENTS: dict[str, Any] = DOCUMENT["components"]["schemas"]
TIMES = {"x-total-time", "x-queue-time", "x-compute-tokens"}
DECISION = {
    "state": {"a": 1},
    "questions": {
        "n": {"type": "noul"},
        "c": {"type": "choice", "criteria": {"a": None, "b": "x"}},
        "s": {"type": "score", "criteria": ["low", {"high": 1}]},
    },
}
REQUESTS: tuple[tuple[Kind, str, object], ...] = (
    (Kind.EMBEDDING, "/embed", {"inputs": ["a", "b"]}),
    (Kind.EMBEDDING, "/embed", {"inputs": "a", "encoding_format": "base64"}),
    (Kind.EMBEDDING, "/embed_all", {"inputs": "a", "encoding_format": "tensor"}),
    (Kind.EMBEDDING, "/v1/embeddings", {"input": "a"}),
    (Kind.EMBEDDING, "/v1/embeddings", {"input": ["a"], "encoding_format": "tensor"}),
    (Kind.LATE_INTERACTION, "/v1/embeddings", {"input": "a", "encoding_format": "base64"}),
    (Kind.EMBEDDING, "/v1/score", {"text_1": "a", "text_2": ["b"]}),
    (Kind.EMBEDDING, "/vertex", {"instances": [{"inputs": "a"}]}),
    (Kind.SPARSE, "/embed_sparse", {"inputs": "a"}),
    (Kind.RERANKER, "/rerank", {"query": "a", "texts": ["b"], "return_text": True}),
    (Kind.RERANKER, "/v2/rerank", {"query": "a", "documents": ["b"], "return_documents": True}),
    (Kind.RERANKER, "/vertex", {"instances": [{"query": "a", "texts": ["b"]}]}),
    (Kind.CLASSIFIER, "/predict", {"inputs": "a"}),
    (Kind.CLASSIFIER, "/predict", {"inputs": [["a"], ["b", "c"]]}),
    (Kind.CLASSIFIER, "/v1/classify", {"input": ["a", "b"]}),
    (Kind.TOKEN_CLASSIFIER, "/predict_tokens", {"inputs": "a b", "ignore_labels": []}),
    (Kind.DECISION, "/v1/systemone", DECISION),
    (Kind.DECISION, "/v1/decide", DECISION),
    (Kind.DECISION, "/", DECISION),
    (Kind.DECISION, "/vertex", {"instances": [DECISION]}),
    (Kind.EMBEDDING, "/tokenize", {"inputs": "a"}),
    (Kind.EMBEDDING, "/decode", {"ids": [1, 2]}),
    (Kind.CLASSIFIER, "/", {"inputs": "a"}),
)
REFUSALS: tuple[tuple[Kind, str, object], ...] = (
    (Kind.EMBEDDING, "/embed", {}),
    (Kind.EMBEDDING, "/embed", {"inputs": [""]}),
    (Kind.EMBEDDING, "/rerank", {"query": "a", "texts": ["b"]}),
    (Kind.EMBEDDING, "/v1/embeddings", {"input": "a", "dimensions": 99}),
    (Kind.EMBEDDING, "/v1/embeddings", {"input": [[-1]]}),
    (Kind.EMBEDDING, "/vertex", {"instances": []}),
    (Kind.EMBEDDING, "/v1/systemone", DECISION),
    (Kind.DECISION, "/v1/systemone", {"state": ""}),
    (Kind.DECISION, "/v1/systemone", {**DECISION, "model": "other"}),
    (Kind.CLASSIFIER, "/v1/classify", {"input": "a", "priority": 1}),
    (Kind.CLASSIFIER, "/predict", {"inputs": ["a", "b", "c"]}),
)
GETS = ("/info", "/models", "/v1/models", "/v1/models/tiny", "/health", "/ready", "/status.json")


def fits(value: object, schema: dict[str, Any]) -> bool:
    """As much of JSON Schema as the document uses for replies."""
    if "$ref" in schema:
        return fits(value, COMPONENTS[schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return any(fits(value, part) for part in schema["anyOf"])
    if "enum" in schema:
        return value in schema["enum"]
    if "const" in schema:
        return bool(value == schema["const"])
    return _fits_type(value, schema)


def _fits_type(value: object, schema: dict[str, Any]) -> bool:
    kind = schema.get("type")
    if not schema:
        return True
    if isinstance(kind, list):
        return any(_fits_type(value, {"type": one, "items": {}}) for one in kind)
    if kind == "array":
        return isinstance(value, list) and all(
            fits(part, schema.get("items", {})) for part in value
        )
    if kind == "object":
        return isinstance(value, dict) and _fits_object(value, schema)
    types: dict[str, type | tuple[type, ...]] = {
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if kind not in types:
        raise AssertionError(f"the document uses what this test does not know: {schema}")
    is_bool = isinstance(value, bool) and kind != "boolean"
    return isinstance(value, types[kind]) and not is_bool


def _fits_object(value: dict[str, object], schema: dict[str, Any]) -> bool:
    known = schema.get("properties", {})
    if not set(schema.get("required", [])) <= set(value):
        return False
    others = schema.get("additionalProperties", True)
    for key, part in value.items():
        if key in known:
            if not fits(part, known[key]):
                return False
        elif others is False or (isinstance(others, dict) and not fits(part, others)):
            return False
    return True


def check(answer: Answer, operation: dict[str, Any]) -> None:
    shown = operation["responses"][str(answer.status)]
    for name, header in shown["headers"].items():
        assert name in answer.headers or not header["required"], name
        if name in answer.headers and header["schema"].get("type") == "integer":
            assert int(answer.headers[name]) >= header["schema"]["minimum"]
    if "content" not in shown:
        assert answer.body == b""
        return
    schema = shown["content"][answer.headers["content-type"].partition(";")[0]]["schema"]
    assert fits(answer.json, schema), answer.body


@pytest.mark.parametrize(("kind", "path", "body"), [*REQUESTS, *REFUSALS])
def test_replies_are_as_described(client_of: ClientOf, kind: Kind, path: str, body: object) -> None:
    answer = client_of(kind).post(path, body)
    assert (answer.status == 200) is ((kind, path, body) in REQUESTS), answer.body
    check(answer, DOCUMENT["paths"][path]["post"])


@pytest.mark.parametrize("path", GETS)
def test_facts_are_as_described(client_of: ClientOf, path: str) -> None:
    listed = "/v1/models/{id}" if path == "/v1/models/tiny" else path
    check(client_of(Kind.EMBEDDING).get(path), DOCUMENT["paths"][listed]["get"])


def test_failures_of_every_kind_are_as_described(client_of: ClientOf) -> None:
    client = client_of(Kind.EMBEDDING)
    operation = DOCUMENT["paths"]["/embed"]["post"]
    check(client.post("/embed", b"{"), operation)
    check(client.request("POST", "/embed", b"x", {"content-type": "text/plain"}), operation)
    check(client.request("PUT", "/embed"), operation)
    coded = {"content-type": "application/json", "content-encoding": "br"}
    check(client.request("POST", "/embed", b"x", coded), operation)
    late = client.post("/embed", {"inputs": "a"}, request_timeout_ms="0")
    assert late.status in {200, 408}
    check(late, operation)
    check(client.get("/v1/models/x"), DOCUMENT["paths"]["/v1/models/{id}"]["get"])
    check(client.get("/info?model=x"), DOCUMENT["paths"]["/info"]["get"])


def test_error_words_are_those_of_the_table() -> None:
    words = set(error_schemas.ErrorType.__args__)  # type: ignore[attr-defined]  # a Literal
    assert words == {kind.value for kind in (*ErrorKind, *HttpErrorKind)}
    codes = set(error_schemas.ErrorCode.__args__)  # type: ignore[attr-defined]  # a Literal
    assert {row.code for row in ERROR_TABLE.values()} <= codes
    nested = set(error_schemas.NestedType.__args__)  # type: ignore[attr-defined]  # a Literal
    assert {row.nested_type for row in ERROR_TABLE.values()} == nested


def test_only_inference_says_what_it_costs() -> None:
    for path, methods in DOCUMENT["paths"].items():
        for method, operation in methods.items():
            is_timed = method == "post" and path not in {"/tokenize", "/decode", "/vertex"}
            headers = set(operation["responses"]["200"]["headers"])
            assert (headers >= TIMES) is is_timed, path
            assert ("deprecation" in headers) is (path == "/predict")
            assert "x-request-id" in headers


@pytest.mark.parametrize("body", [EmbeddingsBody, RerankBody, ScoreBody])
def test_fields_that_exclude_each_other_are_said_to(body: type) -> None:
    groups = [set(part["required"]) for part in COMPONENTS[body.__name__]["oneOf"]]
    assert len(groups) == 2
    assert not set.intersection(*groups)
    assert set.union(*groups) <= set(COMPONENTS[body.__name__]["properties"])


def test_bodies_are_open_and_messages_and_replies_closed() -> None:
    for name in ("EmbedBody", "RerankBody", "ClassifyBody", "VertexBody"):
        assert "additionalProperties" not in COMPONENTS[name]
    for name in ("Message", "TextPart", "EmbeddingsReply", "TeiError", "ModelEntry"):
        assert COMPONENTS[name]["additionalProperties"] is False


def test_inputs_have_their_forms() -> None:
    forms = COMPONENTS["EmbedBody"]["properties"]["inputs"]["anyOf"]
    assert {"type": "string", "minLength": 1} in forms
    ids = {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 0}}
    assert ids in forms
    assert "x-replaces-schema" not in json.dumps(DOCUMENT)


@pytest.mark.parametrize(
    ("question", "is_valid"),
    [
        ({"type": "choice", "criteria": ["parcel", "invoice"]}, True),
        ({"type": "choice", "criteria": {"parcel": None, "invoice": 4}}, True),
        ({"type": "choice", "criteria": [1]}, False),
        ({"type": "choice"}, False),
        ({"type": "score", "criteria": [0, 0.5, True, "much", {"a": 1}, ["b"]]}, True),
        ({"type": "score", "criteria": ["calm", None]}, False),
        ({"type": "noul"}, True),
        ({"type": "noul", "criteria": {"True": "yes", "False": None}}, True),
        ({"type": "noul", "criteria": {"true": "yes"}, "instructions": ["a"]}, True),
        ({"type": "noul", "criteria": {"maybe": "yes"}}, False),
        ({"type": "box"}, False),
    ],
)
def test_questions_fit_the_document_if_they_are_taken(
    client_of: ClientOf, question: dict[str, Any], is_valid: bool
) -> None:
    schema = COMPONENTS["DecideBody"]["properties"]["questions"]
    assert fits({"q": question}, schema) == is_valid
    body = {"model": "tiny", "state": "", "questions": {"q": question}}
    assert client_of(Kind.DECISION).post("/v1/systemone", body).status == (200 if is_valid else 422)
