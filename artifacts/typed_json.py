"""Strict conversion between canonical JSON and frozen dataclasses, driven by their annotations.

Owns what all our documents have in common: keys, types, duplicate keys, canonical bytes. Knows no
document.
"""

import dataclasses
import json
import math
import re
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from functools import cache
from typing import TypeVar

from infinity_v3.artifacts.errors import RefusedError

T = TypeVar("T")

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_JSON_TYPES: Mapping[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a number with a fraction or exponent",
    type(None): "null",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Location:
    """A place in a document, for messages such as `artifact.json: targets[1].entry: ...`."""

    document: str
    path: str = ""

    def key(self, name: str) -> "Location":
        """Return the place of a member of this object."""
        if not _PLAIN_KEY.fullmatch(name):
            return Location(self.document, f"{self.path}[{show(name)}]")
        return Location(self.document, f"{self.path}.{name}" if self.path else name)

    def item(self, index: int) -> "Location":
        """Return the place of an element of this array."""
        return Location(self.document, f"{self.path}[{index}]")

    def refuse(self, problem: str) -> RefusedError:
        """Make the error that names this place."""
        return RefusedError(": ".join(part for part in (self.document, self.path, problem) if part))


class JsonObject(dict[str, object]):
    """A parsed object that remembers the first key it held twice."""

    duplicate_key: str | None = None


def show(value: object) -> str:
    """Render a found value for a message, short and on one line."""
    if isinstance(value, (dict, list)):
        return _JSON_TYPES[dict if isinstance(value, dict) else list]
    text = ascii(value) if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


def parse(data: bytes, at: Location) -> object:
    """Parse JSON bytes; objects come back as `JsonObject`.

    Raises:
        RefusedError: not UTF-8, not JSON, NaN or Infinity, or nested too deeply.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=object_from_pairs,
            parse_constant=lambda token: _refuse_constant(token, at),
        )
    except UnicodeDecodeError as error:
        raise at.refuse(f"expected UTF-8, found an invalid byte at {error.start}") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno} column {error.colno}"
        raise at.refuse(f"expected JSON, found an error at {where}: {error.msg}") from None
    except ValueError:
        raise at.refuse("expected JSON, found an integer with thousands of digits") from None
    except RecursionError:
        raise at.refuse("expected a manifest's few levels, found deeply nested JSON") from None


def canonical_bytes(document: object, at: Location) -> bytes:
    """Serialise to the one form: sorted keys, no spaces, unescaped UTF-8, newline at the end.

    Raises:
        RefusedError: a value has no JSON form (NaN, Infinity, a lone surrogate).
    """
    try:
        text = json.dumps(
            document, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
        )
        return text.encode("utf-8") + b"\n"
    except UnicodeEncodeError as error:
        raise at.refuse(
            f"expected valid Unicode, found {show(error.object[error.start])}"
        ) from None
    except (TypeError, ValueError) as error:
        raise at.refuse(f"expected a value that JSON can hold: {error}") from None


def check_canonical(data: bytes, document: object, at: Location) -> None:
    """Refuse `data` unless it is exactly the canonical form of `document`."""
    expected = canonical_bytes(document, at)
    if data == expected:
        return
    pairs = zip(data, expected, strict=False)
    shorter = min(len(data), len(expected))
    position = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    raise at.refuse(
        "expected canonical JSON (UTF-8, sorted keys, separators ',' and ':', newline at the end), "
        f"found other bytes from byte {position} on"
    )


def to_json(value: object) -> object:
    """Turn dataclasses, enums, tuples and mappings into what `json` can write."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.key: to_json(field.coerce(found))
            for field in _fields_of(type(value))
            if (found := getattr(value, field.name)) is not None or not field.is_optional
        }
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [to_json(item) for item in value]
    return value


def from_json(value: object, cls: type[T], at: Location) -> T:
    """Build a dataclass from a parsed document, refusing everything its annotations do not say.

    Raises:
        RefusedError: unknown, duplicate or missing key, wrong type, or a value outside an enum.
    """
    return typing.cast(T, _decode(value, cls, at))


def check_keys(
    value: object, expected: Iterable[str], at: Location, *, optional: Collection[str] = ()
) -> JsonObject:
    """Return `value` as an object that holds exactly the `expected` keys.

    Args:
        optional: those of them that may be missing.
    """
    found = check_object(value, at)
    names = tuple(expected)
    for name in found:
        if name not in names:
            raise at.key(name).refuse(f"unknown key; known here: {', '.join(names)}")
    for name in names:
        if name not in found and name not in optional:
            raise at.key(name).refuse("missing key")
    return found


def check_object(value: object, at: Location) -> JsonObject:
    """Return `value` as an object without duplicate keys."""
    if not isinstance(value, JsonObject):
        raise at.refuse(f"expected an object, found {_describe(value)}")
    if value.duplicate_key is not None:
        raise at.key(value.duplicate_key).refuse("duplicate key")
    return value


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    name: str
    key: str
    annotation: object
    is_optional: bool
    plain_types: frozenset[type]
    """Values of exactly these types are right as they are."""

    def coerce(self, value: object) -> object:
        """Write 1 in a float field as 1.0, so that equal values have equal bytes."""
        is_float = self.annotation in (float, float | None)
        return float(value) if is_float and type(value) is int else value


@cache
def _fields_of(cls: type) -> tuple[_Field, ...]:
    hints = typing.get_type_hints(cls)
    return tuple(
        _Field(
            field.name,
            field.metadata.get("key", field.name),
            hints[field.name],
            bool(field.metadata.get("is_optional", False)),
            _plain_types(hints[field.name]),
        )
        for field in dataclasses.fields(cls)
    )


def _plain_types(annotation: object) -> frozenset[type]:
    members = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    return frozenset(member for member in members if member in (str, int, bool, type(None)))


def _is_union(annotation: object) -> bool:
    return typing.get_origin(annotation) in (types.UnionType, typing.Union)


def object_from_pairs(pairs: list[tuple[str, object]]) -> JsonObject:
    """Make an object of what a parser found, the last value of a key given twice."""
    found = JsonObject(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                found.duplicate_key = key
                break
            seen.add(key)
    return found


def _refuse_constant(token: str, at: Location) -> object:
    raise at.refuse(f"expected finite numbers, found {token}")


def _describe(value: object) -> str:
    if value is None or isinstance(value, (dict, list)):
        return _JSON_TYPES[dict if isinstance(value, dict) else type(value)]
    return f"{_JSON_TYPES[type(value)]}: {show(value)}"


def _decode(value: object, annotation: object, at: Location) -> object:
    if annotation in (str, int, bool, float):
        return _decode_scalar(value, typing.cast(type, annotation), at)
    if annotation in (None, type(None)):
        _check_null(value, at)
        return None
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _decode_enum(value, annotation, at)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _decode_dataclass(value, annotation, at)
    decoder = _CONTAINERS.get(typing.get_origin(annotation))
    if decoder is None:
        raise TypeError(f"no JSON form for the annotation {annotation!r}; this is a bug")
    return decoder(value, typing.get_args(annotation), at)


def _decode_scalar(value: object, expected: type, at: Location) -> object:
    # `type() is` and not isinstance: True is an int in Python and not in JSON.
    if type(value) is not expected:
        raise at.refuse(f"expected {_JSON_TYPES[expected]}, found {_describe(value)}")
    if isinstance(value, float) and not math.isfinite(value):
        raise at.refuse("expected a finite number, found one too large for 64 bits")
    return value


def _check_null(value: object, at: Location) -> None:
    if value is not None:
        raise at.refuse(f"expected null, found {_describe(value)}")


def _decode_enum(value: object, cls: type[Enum], at: Location) -> Enum:
    for member in cls:
        if type(value) is str and member.value == value:
            return member
    allowed = ", ".join(str(member.value) for member in cls)
    raise at.refuse(f"expected one of {allowed}; found {_describe(value)}")


def _decode_dataclass(document: object, cls: type, at: Location) -> object:
    fields = _fields_of(cls)
    optional = {field.key for field in fields if field.is_optional}
    found = check_keys(document, (field.key for field in fields), at, optional=optional)
    return cls(
        **{
            field.name: value
            # Most values are plain: a place in the document is made for the others only.
            if type(value := found.get(field.key)) in field.plain_types
            else _decode(value, field.annotation, at.key(field.key))
            for field in fields
        }
    )


def _decode_tuple(value: object, args: tuple[object, ...], at: Location) -> tuple[object, ...]:
    if not isinstance(value, list):
        raise at.refuse(f"expected an array, found {_describe(value)}")
    return tuple(_decode(item, args[0], at.item(index)) for index, item in enumerate(value))


def _decode_mapping(value: object, args: tuple[object, ...], at: Location) -> dict[str, object]:
    found = check_object(value, at)
    return {key: _decode(item, args[1], at.key(key)) for key, item in found.items()}


def _decode_union(value: object, args: tuple[object, ...], at: Location) -> object:
    members = [member for member in args if member is not type(None)]
    if value is None and len(members) < len(args):
        return None
    if len(members) == 1:
        return _decode(value, members[0], at)
    for member in members:
        if type(value) is member:
            return _decode(value, member, at)
    expected = " or ".join(_JSON_TYPES[typing.cast(type, member)] for member in members)
    raise at.refuse(f"expected {expected}, found {_describe(value)}")


_CONTAINERS: Mapping[object, Callable[[object, tuple[object, ...], Location], object]] = {
    tuple: _decode_tuple,
    Mapping: _decode_mapping,
    types.UnionType: _decode_union,
    typing.Union: _decode_union,
}
