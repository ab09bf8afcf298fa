"""Hypothesis strategies of request documents: right ones from their types, and spoilt ones.

Knows nothing of routes, bytes or servers.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from fuzz_decisions import LENGTHS, QUESTIONS, STATES

Document = Any
"""A tree of what JSON or MessagePack can hold, and of some values that only one of them can."""

Strategy = st.SearchStrategy[Any]

_INT64 = (-(2**63), 2**64 - 1)
MAX_TEXT = 40

# "w3" and "query" mean something to the model behind the tests.
_KNOWN_TEXTS = (
    *("a", "w3 w5", "w7 w8 w9", "query", "[SEP] a", "<s>", "\x00", " ", "", "LABEL_0"),
    *("深度学习 é", "e\u0301\u200d🙂🚀", "\ufeffa", "w5 " * 90, "x" * 300, "user", "text"),
)
_ODD_TEXTS = ("\ud800", "a\udfff", "\ud83d", "$.inputs - at `$`", "..." * 400)
_IDS = st.integers(0, 40) | st.integers(-2, 1100)
_DIMENSIONS = st.integers(-1, 9) | st.sampled_from((0, 8, 384, 2**31, 2**63, 2**64 - 1))
# Fields whose type says too little for a value to be right now and then.
_NAMED_FIELDS: Mapping[str, Strategy] = {
    "dimensions": _DIMENSIONS | st.none(),
    "prompt_name": st.none() | st.sampled_from(("query", "query", "nope")),
    "state": STATES,
    "questions": QUESTIONS,
    "max_len": LENGTHS,
    "head_max_len": LENGTHS,
    **dict.fromkeys(("assets", "images", "media"), st.sampled_from((None, None, None, [], {}))),
}
_JUNK_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.sampled_from((2**31, 2**63, 2**64, -(2**63), 10**30, 1.0, 1.5, -0.0, 1e308, math.nan)),
    st.sampled_from((math.inf, b"", b"bytes", msgspec.msgpack.Ext(5, b"x"))),
    st.sampled_from((*_KNOWN_TEXTS, *_ODD_TEXTS)),
    st.text(max_size=MAX_TEXT),
)
JUNK: Strategy = st.recursive(
    _JUNK_LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@cache
def documents_of(body_type: type[msgspec.Struct]) -> Strategy:
    """Documents that fit a body type, though their values need not make sense."""
    return _of(inspect.type_info(body_type))


@st.composite
def wholes_of(
    draw: st.DrawFn, whole_type: type[msgspec.Struct], part_types: Sequence[type[msgspec.Struct]]
) -> Document:
    """Documents whose lists of objects hold documents of other types, mostly of one."""
    document = draw(documents_of(whole_type))
    types = draw(st.lists(st.sampled_from(part_types), min_size=1, max_size=2))
    parts = st.one_of(*map(documents_of, types))
    for field in inspect.type_info(whole_type).fields:  # type: ignore[attr-defined]
        if _holds_objects(field.type):
            document[field.encode_name] = draw(st.lists(parts, max_size=2))
    return document


def _holds_objects(info: inspect.Type) -> bool:
    if isinstance(info, inspect.Metadata):
        return _holds_objects(info.type)
    return isinstance(info, inspect.ListType) and isinstance(info.item_type, inspect.DictType)


@st.composite
def spoilt(draw: st.DrawFn, documents: Strategy) -> Document:
    """Documents with up to three changes somewhere, or something else altogether."""
    document = draw(documents)
    for _ in range(draw(st.integers(0, 3))):
        document = _changed(draw, document)
    return document


def is_plain(node: Document) -> bool:
    """Whether JSON and MessagePack both can say this and mean the same."""
    if isinstance(node, dict):
        return all(isinstance(key, str) and is_plain(key) for key in node) and all(
            map(is_plain, node.values())
        )
    if isinstance(node, list):
        return all(map(is_plain, node))
    if isinstance(node, str):
        return not any("\ud800" <= character <= "\udfff" for character in node)
    if isinstance(node, bool) or node is None:
        return True
    if isinstance(node, int):
        return _INT64[0] <= node <= _INT64[1]
    return isinstance(node, float) and math.isfinite(node)


def _texts() -> Strategy:
    return st.sampled_from(_KNOWN_TEXTS) | st.text(max_size=MAX_TEXT)


def _integers(info: inspect.IntType) -> Strategy:
    least = info.ge if info.ge is not None else None
    return st.integers(min_value=least, max_value=1100) if least is not None else _IDS


def _list(info: inspect.ListType) -> Strategy:
    items = _of(info.item_type)
    return st.lists(items, max_size=4) | st.lists(items, min_size=1, max_size=2)


def _struct(info: inspect.StructType) -> Strategy:
    required = {field.encode_name: _field(field) for field in info.fields if field.required}
    # Fields that may be absent and have no default exclude each other: one of them is meant.
    either = [f for f in info.fields if not f.required and _has_no_default(f)]
    optional = {
        field.encode_name: _field(field)
        for field in info.fields
        if not field.required and field not in either
    }
    if info.tag_field is not None:
        required[info.tag_field] = st.just(info.tag)
    return _filled(required, {f.encode_name: _field(f) for f in either}, optional)


@st.composite
def _filled(
    draw: st.DrawFn,
    required: Mapping[str, Strategy],
    either: Mapping[str, Strategy],
    optional: Mapping[str, Strategy],
) -> Document:
    chosen = dict(required)
    if either:
        chosen |= {name: either[name] for name in draw(st.sampled_from(_groups(tuple(either))))}
    if optional:
        names = draw(st.lists(st.sampled_from(sorted(optional)), max_size=3))
        chosen |= {name: optional[name] for name in names}
    return {name: draw(strategy) for name, strategy in chosen.items()}


def _groups(names: Sequence[str]) -> Sequence[Sequence[str]]:
    """Which of several fields are given: one of two, or one of several pairs; seldom all."""
    if len(names) == 2:
        return [[name] for name in names] * 3 + [names]
    return [names[start : start + 2] for start in range(0, len(names), 2)] * 3 + [names, names[:1]]


def _field(field: inspect.Field) -> Strategy:
    named = _NAMED_FIELDS.get(field.encode_name)
    return _of(field.type) if named is None else named


def _has_no_default(field: inspect.Field) -> bool:
    return field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT


def _of(info: inspect.Type) -> Strategy:
    """A strategy for one type.

    Raises:
        AssertionError: body types use a kind of type that is not known here yet.
    """
    for kind, make in _MAKERS.items():
        if isinstance(info, kind):
            return make(info)
    raise AssertionError(f"no strategy for {info!r}: add one")


_MAKERS: Mapping[type[inspect.Type], Callable[[Any], Strategy]] = {
    inspect.StrType: lambda _: _texts(),
    inspect.BoolType: lambda _: st.booleans(),
    inspect.IntType: _integers,
    inspect.FloatType: lambda _: st.floats(allow_nan=False, allow_infinity=False),
    inspect.NoneType: lambda _: st.none(),
    inspect.AnyType: lambda _: JUNK,
    inspect.RawType: lambda _: JUNK,
    inspect.LiteralType: lambda info: st.sampled_from(info.values),
    inspect.ListType: _list,
    inspect.VarTupleType: lambda info: st.lists(_of(info.item_type), max_size=4),
    inspect.DictType: lambda info: st.dictionaries(
        _of(info.key_type), _of(info.value_type), max_size=3
    ),
    inspect.UnionType: lambda info: st.one_of(*map(_of, info.types)),
    inspect.Metadata: lambda info: _of(info.type),
    inspect.StructType: _struct,
}


def _changed(draw: st.DrawFn, document: Document) -> Document:
    places = _places(document)
    if not places:
        return draw(JUNK)
    keys = places[draw(st.integers(0, len(places) - 1))]
    return _replaced(document, keys, draw(st.sampled_from(_CHANGES))(draw))


def _places(node: Document, above: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """The path of every node but the root; at most a few hundred."""
    children: Sequence[tuple[object, Document]] = ()
    if isinstance(node, dict):
        children = list(node.items())
    elif isinstance(node, list):
        children = list(enumerate(node))
    found = []
    for key, child in children:
        found += [(*above, key), *_places(child, (*above, key))]
    return found[:300]


def _replaced(
    node: Document, keys: tuple[object, ...], change: Callable[[Document, object], None]
) -> Document:
    """A copy with the node at the path changed."""
    copy: Any = dict(node) if isinstance(node, dict) else list(node)
    key, *below = keys
    if below:
        copy[key] = _replaced(copy[key], tuple(below), change)
    else:
        change(copy, key)
    return copy


_Change = Callable[[Any, Any], None]


def _put_junk(draw: st.DrawFn) -> _Change:
    value = draw(JUNK)

    def change(parent: Document, key: object) -> None:
        parent[key] = value

    return change


def _remove(draw: st.DrawFn) -> _Change:
    def change(parent: Document, key: object) -> None:
        del parent[key]

    return change


def _wrap(draw: st.DrawFn) -> _Change:
    depth = draw(st.sampled_from((1, 1, 2, 61, 62, 63, 64, 65, 200)))

    def change(parent: Document, key: object) -> None:
        for _ in range(depth):
            parent[key] = [parent[key]]

    return change


def _multiply(draw: st.DrawFn) -> _Change:
    count = draw(st.sampled_from((2, 3, 33)))

    def change(parent: Document, key: object) -> None:
        if isinstance(parent[key], list):
            parent[key] = parent[key] * count

    return change


def _rename(draw: st.DrawFn) -> _Change:
    name = draw(st.text(max_size=8) | st.integers(0, 3) | st.sampled_from(_FIELD_NAMES))

    def change(parent: Document, key: object) -> None:
        if isinstance(parent, dict):
            parent[name] = parent.pop(key)

    return change


_FIELD_NAMES = (
    *("inputs", "input", "messages", "texts", "documents", "query", "model", "dimensions"),
    *("state", "questions", "criteria", "instructions", "labels", "max_len", "head_max_len"),
    *("truncate", "prompt_name", "role", "content", "type", "text", "instances", "parameters"),
)
_CHANGES = (_put_junk, _put_junk, _remove, _wrap, _multiply, _rename)
