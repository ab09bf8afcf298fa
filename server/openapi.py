"""The OpenAPI 3.1 document, built from the body types and the route table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import orjson

from infinity_v3.server import schemas
from infinity_v3.server.negotiation import MSGPACK_TYPES
from infinity_v3.server.product import product_version

_REF = "#/components/schemas/{name}"
_STATUSES = {
    "400": "Not a document, or an empty input",
    "401": "Missing or wrong API key",
    "404": "Unknown path or model",
    "405": "Another method is needed",
    "408": "The body or the queue took too long",
    "413": "The body is larger than --payload-limit",
    "415": "Unsupported media type or content coding",
    "422": "A field is missing, of the wrong type or out of range",
    "424": "The model cannot do this, or inference failed",
    "429": "Overloaded; see Retry-After",
    "500": "Internal error",
    "503": "Not ready; see Retry-After",
}
_POST_STATUSES = tuple(_STATUSES)
_GET_STATUSES = ("401", "404", "405", "500", "503")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What the document says about one route."""

    method: str
    path: str
    summary: str
    body: Any = None
    reply: Any = None
    reply_type: str = "application/json"
    error: type[msgspec.Struct] = schemas.TeiError
    is_open: bool = False
    parameters: Sequence[Mapping[str, object]] = field(default_factory=tuple)


def operations() -> tuple[Operation, ...]:
    """Every documented route."""
    vectors = list[list[float] | str | schemas.TensorData]
    matrices = list[list[list[float]] | schemas.TensorData]
    openai = schemas.OpenAIError
    return (
        Operation(
            method="post",
            path="/v1/embeddings",
            summary="Embed texts (OpenAI)",
            body=schemas.EmbeddingsBody,
            reply=schemas.EmbeddingsReply,
            error=openai,
        ),
        Operation(
            method="post",
            path="/embeddings",
            summary="Same as /v1/embeddings",
            body=schemas.EmbeddingsBody,
            reply=schemas.EmbeddingsReply,
            error=openai,
        ),
        Operation(
            method="post",
            path="/embed",
            summary="Embed texts: one vector per item",
            body=schemas.EmbedBody,
            reply=vectors,
        ),
        *(
            Operation(
                method="post",
                path=path,
                summary="Same as /embed",
                body=schemas.EmbedBody,
                reply=vectors,
            )
            for path in ("/", "/invocations")
        ),
        Operation(
            method="post",
            path="/embed_all",
            summary="Embed every token: one matrix per item",
            body=schemas.EmbedAllBody,
            reply=matrices,
        ),
        Operation(
            method="post",
            path="/tokenize",
            summary="Split texts into tokens; offsets count characters",
            body=schemas.TokenizeBody,
            reply=list[list[schemas.TokenReply]],
        ),
        Operation(
            method="post",
            path="/decode",
            summary="Turn token ids back into text",
            body=schemas.DecodeBody,
            reply=list[str],
        ),
        Operation(
            method="get",
            path="/info",
            summary="Facts about one model",
            reply=schemas.InfoReply,
            parameters=(_parameter("model", "query"),),
        ),
        Operation(
            method="get",
            path="/v1/models",
            summary="Served models",
            reply=schemas.ModelList,
            error=openai,
        ),
        Operation(
            method="get",
            path="/models",
            summary="Same as /v1/models",
            reply=schemas.ModelList,
            error=openai,
        ),
        Operation(
            method="get",
            path="/v1/models/{id}",
            summary="One served model; the id may contain '/'",
            reply=schemas.ModelEntry,
            error=openai,
            parameters=(_parameter("id", "path"),),
        ),
        Operation(method="get", path="/", summary="Same as /health", is_open=True),
        Operation(method="get", path="/health", summary="Are the engines up?", is_open=True),
        Operation(method="get", path="/ping", summary="Same as /health", is_open=True),
        Operation(
            method="get",
            path="/ready",
            summary="Are new requests welcome?",
            reply=schemas.ReadyReply,
            is_open=True,
        ),
        Operation(
            method="get",
            path="/metrics",
            summary="Prometheus metrics",
            reply=str,
            reply_type="text/plain",
            is_open=True,
        ),
        Operation(
            method="get",
            path="/docs",
            summary="Interactive page",
            reply=str,
            reply_type="text/html",
            is_open=True,
        ),
        Operation(
            method="get",
            path="/api-doc/openapi.json",
            summary="This document",
            reply=dict[str, Any],
            is_open=True,
        ),
    )


def _parameter(name: str, place: str) -> dict[str, object]:
    return {"name": name, "in": place, "required": place == "path", "schema": {"type": "string"}}


def openapi_document() -> bytes:
    """The document as JSON."""
    known = operations()
    types = [kind for op in known for kind in (op.body, op.reply, op.error) if kind is not None]
    schema_list, components = msgspec.json.schema_components(types, ref_template=_REF)
    shown = dict(zip(map(repr, types), schema_list, strict=True))
    paths: dict[str, dict[str, object]] = {}
    for op in known:
        paths.setdefault(op.path, {})[op.method] = _operation(op, shown)
    return orjson.dumps(
        {
            "openapi": "3.1.0",
            "info": {"title": "Infinity V3", "version": product_version()},
            "paths": paths,
            "components": {
                "schemas": components,
                "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
            },
        }
    )


def _operation(op: Operation, shown: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    entry: dict[str, object] = {
        "summary": op.summary,
        "operationId": f"{op.method}{op.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "security": [] if op.is_open else [{"key": []}, {}],
        "responses": _responses(op, shown),
    }
    if op.parameters:
        entry["parameters"] = list(op.parameters)
    if op.body is not None:
        schema = {"schema": shown[repr(op.body)]}
        types = ("application/json", *MSGPACK_TYPES)
        entry["requestBody"] = {"required": True, "content": dict.fromkeys(types, schema)}
    return entry


def _responses(op: Operation, shown: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    success: dict[str, object] = {"description": "Success"}
    if op.reply is not None:
        success["content"] = {op.reply_type: {"schema": shown[repr(op.reply)]}}
    error = {"application/json": {"schema": shown[repr(op.error)]}}
    statuses = _POST_STATUSES if op.method == "post" else _GET_STATUSES
    failures = {status: {"description": _STATUSES[status], "content": error} for status in statuses}
    return {"200": success, **failures}
