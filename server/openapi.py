"""The OpenAPI 3.1 document, built from the documented operations. Knows nothing of routes."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import orjson

from infinity_v3.server.input_schemas import REPLACES, list_of, one_of
from infinity_v3.server.negotiation import JSON_TYPE, MSGPACK_TYPES
from infinity_v3.server.openapi_replies import responses
from infinity_v3.server.operations import (
    KIND_BODIES,
    KIND_REPLIES,
    Operation,
    ReplyForm,
    operations,
)
from infinity_v3.server.product import product_version
from infinity_v3.server.reply_schemas import VertexReply
from infinity_v3.server.schemas import Message, VertexBody

Schemas = Mapping[str, Mapping[str, object]]
_REF = "#/components/schemas/{name}"


def openapi_document() -> bytes:
    """The document as JSON."""
    known = operations()
    types = list(_types(known))
    schema_list, found = msgspec.json.schema_components(types, ref_template=_REF)
    shown = {repr(kind): _plain(schema) for kind, schema in zip(types, schema_list, strict=True)}
    components = {name: _plain(schema) for name, schema in found.items()}
    _complete(components, shown, known)
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


def _types(known: Iterable[Operation]) -> Iterable[Any]:
    for op in known:
        yield from (*op.bodies, *op.replies, op.error)
        if op.unready is not None:
            yield op.unready
    # Only schemas that replace others speak of it.
    yield Message


def _plain(schema: Any) -> Any:  # noqa: ANN401  # any part of a schema
    """Put in what stands for the schema of a type; its description stays."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if REPLACES in schema:
        kept = {key: schema[key] for key in ("description", "default") if key in schema}
        return {**kept, **_plain(schema[REPLACES])}
    return {key: _plain(value) for key, value in schema.items()}


def _complete(
    components: dict[str, dict[str, Any]], shown: Schemas, known: Iterable[Operation]
) -> None:
    """Say what types do not: fields that exclude each other, instances, that replies are closed."""
    bodies = {body.__name__: body for op in known for body in op.bodies}
    for name, body in bodies.items():
        alternatives = getattr(body, "alternatives", ())
        if alternatives:
            components[name]["oneOf"] = [{"required": list(group)} for group in alternatives]
    instances = list_of(one_of(*(shown[repr(body)] for body in KIND_BODIES)))
    components[VertexBody.__name__]["properties"]["instances"] = instances
    predictions = one_of(*(shown[repr(reply)] for reply in KIND_REPLIES))
    components[VertexReply.__name__]["properties"]["predictions"] = list_of(predictions)
    for name in _reply_names(known):
        components[name].setdefault("additionalProperties", False)


def _reply_names(known: Iterable[Operation]) -> set[str]:
    """Components that only replies have."""
    replies = [kind for op in known for kind in (*op.replies, op.error, op.unready) if kind]
    return set(msgspec.json.schema_components(replies)[1])


def _operation(op: Operation, shown: Schemas) -> dict[str, object]:
    entry: dict[str, object] = {
        "summary": op.summary,
        "operationId": f"{op.method}{op.path.replace('/', '_').replace('{', '').replace('}', '')}",
        "security": [] if op.is_open else [{"key": []}, {}],
        "responses": responses(op, _any_of(op.replies, shown) if op.replies else None),
    }
    if op.is_deprecated:
        entry["deprecated"] = True
    if op.parameters:
        entry["parameters"] = list(op.parameters)
    if op.bodies:
        schema = {"schema": _any_of(op.bodies, shown)}
        packed = () if op.form is ReplyForm.DECISION else MSGPACK_TYPES
        entry["requestBody"] = {
            "required": True,
            "content": dict.fromkeys((JSON_TYPE, *packed), schema),
        }
    return entry


def _any_of(kinds: tuple[object, ...], shown: Schemas) -> Mapping[str, object]:
    schemas = [shown[repr(kind)] for kind in kinds]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}
