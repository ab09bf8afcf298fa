"""The OpenAPI 3.1 document, built from the documented operations. Knows nothing of routes."""

from collections.abc import Mapping

import msgspec
import orjson

from infinity_v3.server.negotiation import MSGPACK_TYPES
from infinity_v3.server.operations import Operation, operations
from infinity_v3.server.product import product_version

Schemas = Mapping[str, Mapping[str, object]]
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


def openapi_document() -> bytes:
    """The document as JSON."""
    known = operations()
    types = [kind for op in known for kind in (*op.bodies, *op.replies, op.error)]
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


def _operation(op: Operation, shown: Schemas) -> dict[str, object]:
    entry: dict[str, object] = {
        "summary": op.summary,
        "operationId": f"{op.method}{op.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "security": [] if op.is_open else [{"key": []}, {}],
        "responses": _responses(op, shown),
    }
    if op.parameters:
        entry["parameters"] = list(op.parameters)
    if op.bodies:
        schema = {"schema": _any_of(op.bodies, shown)}
        types = ("application/json", *MSGPACK_TYPES)
        entry["requestBody"] = {"required": True, "content": dict.fromkeys(types, schema)}
    return entry


def _responses(op: Operation, shown: Schemas) -> dict[str, object]:
    success: dict[str, object] = {"description": "Success"}
    if op.replies:
        success["content"] = {op.reply_type: {"schema": _any_of(op.replies, shown)}}
    error = {"application/json": {"schema": shown[repr(op.error)]}}
    statuses = _POST_STATUSES if op.method == "post" else _GET_STATUSES
    failures = {status: {"description": _STATUSES[status], "content": error} for status in statuses}
    return {"200": success, **failures}


def _any_of(kinds: tuple[object, ...], shown: Schemas) -> Mapping[str, object]:
    schemas = [shown[repr(kind)] for kind in kinds]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
