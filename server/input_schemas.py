"""What the API document says of inputs, where their types alone would say too much or too little.

Parsing does not look at it: what is wrong with an input has errors with codes of their own. Knows
nothing of bodies.
"""

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

REPLACES = "x-replaces-schema"
"""Key of a schema that stands for the one that a type gives."""
_REF = "#/components/schemas/{name}"


def instead(schema: Schema) -> dict[str, Any]:
    """Extra schema of a type that is not to show its own."""
    return {REPLACES: dict(schema)}


def one_of(*schemas: Schema) -> Schema:
    """Any of several forms."""
    return {"anyOf": [dict(schema) for schema in schemas]}


def list_of(schema: Schema, **limits: int) -> Schema:
    """A list, by default of at least one element."""
    return {"type": "array", "minItems": 1, "items": dict(schema), **limits}


def named(name: str) -> Schema:
    """A schema among the components."""
    return {"$ref": _REF.format(name=name)}


TEXT: Schema = {"type": "string", "minLength": 1}
WORDS: Schema = {"type": "string", "pattern": r"\S"}
TOKEN_IDS = list_of({"type": "integer", "minimum": 0})
CONVERSATION = list_of(named("Message"))
INPUT = one_of(TEXT, TOKEN_IDS, CONVERSATION, list_of(one_of(TEXT, TOKEN_IDS, CONVERSATION)))
ONE_TEXT_OR_TWO = list_of({"type": "string"}, maxItems=2)
PREDICT_INPUT = one_of(
    TEXT,
    TOKEN_IDS,
    ONE_TEXT_OR_TWO,
    named("Conversation"),
    list_of(one_of(ONE_TEXT_OR_TWO, named("Conversation"), CONVERSATION)),
    list_of(TOKEN_IDS),
)
CLASSIFY_INPUT = one_of(WORDS, TOKEN_IDS, list_of(WORDS), list_of(TOKEN_IDS))
TEXTS = one_of(TEXT, list_of(TEXT))
SIDE = one_of({"type": "string"}, list_of({"type": "string"}))
ID_LISTS = one_of(TOKEN_IDS, list_of(TOKEN_IDS))
_ANY_TEXT = one_of({"type": "string"}, {"type": "object"}, {"type": "array"})
STATE = {"anyOf": _ANY_TEXT["anyOf"]}
NULL: Schema = {"type": "null"}
_ANYTHING: Schema = {"type": ["string", "number", "boolean", "object", "array"]}
"""But null."""
_OPTIONS: Schema = list_of({"type": "string"}, uniqueItems=True)
_INSTRUCTIONS = {"instructions": one_of(_ANY_TEXT, NULL)}


def _question(kind: str, criteria: Schema, *required: str) -> Schema:
    return {
        "type": "object",
        "properties": {"type": {"const": kind}, **_INSTRUCTIONS, "criteria": dict(criteria)},
        "required": ["type", *required],
    }


def _sides(*names: str) -> Schema:
    return {
        "type": "object",
        "properties": {name: {} for name in names},
        "additionalProperties": False,
    }


QUESTIONS = {
    "type": "object",
    "minProperties": 1,
    "propertyNames": {"minLength": 1},
    "additionalProperties": one_of(
        _question("noul", one_of(_sides("true", "false"), _sides("True", "False"), NULL)),
        _question("choice", one_of({"type": "object", "minProperties": 1}, _OPTIONS), "criteria"),
        _question("score", list_of(_ANYTHING), "criteria"),
    ),
}
POSITIVE_OR_NULL = one_of({"type": "integer", "minimum": 1}, NULL)
CUT = one_of({"type": "integer", "const": -1}, {"type": "integer", "minimum": 1}, NULL)
