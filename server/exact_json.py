"""JSON as it was sent: keys in their order, numbers exactly, no key twice where it would matter.

For routes whose models read the document itself. Knows nothing of which fields there are.
"""

import json
import math
import re
import sys
from collections.abc import Iterable, Mapping
from typing import NoReturn

from infinity_v3.artifacts.typed_json import object_from_pairs
from infinity_v3.server.body_weight import refuse_many_members, too_crowded
from infinity_v3.server.codec import collector_paused
from infinity_v3.server.decision_errors import invalid
from infinity_v3.server.errors import HttpError, malformed

MAX_DEPTH = 100
MAX_MEMBERS = 250_000
"""Of all lists and objects of a document: Python looks at each of them, a quarter of a second."""
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_INT64 = (-(2**63), 2**64 - 1)
_FOREIGN = (
    "expected what JSON holds: texts as keys, no bytes, finite numbers of 64 bits, valid Unicode"
)


def parse_exact(data: bytes) -> object:
    """Parse a document; objects come back as `JsonObject`.

    Raises:
        HttpError: MALFORMED: not UTF-8, no JSON, NaN or infinity, a lone surrogate, a whole number
            of more than 4,300 digits, or more than 100 levels; PAYLOAD_TOO_LARGE.
    """
    refuse_many_members(data, MAX_MEMBERS)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise malformed(f"the body is not valid UTF-8 at byte {error.start}") from None
    try:
        with collector_paused():
            document = json.loads(
                text,
                object_pairs_hook=object_from_pairs,
                parse_constant=_refuse_constant,
                parse_float=_finite,
            )
    except RecursionError:
        raise _too_deep() from None
    except json.JSONDecodeError as error:
        raise malformed(f"the body is not valid JSON: {error}") from None
    except ValueError as error:
        reason = str(error)
        if "integer string conversion" in reason:
            reason = f"a whole number has more than {sys.get_int_max_str_digits()} digits"
        raise malformed(f"the body holds what cannot be read: {reason}") from None
    _check(document, has_escapes=_SURROGATE_ESCAPE.search(text) is not None)
    return document


def write_exact(value: object) -> bytes:
    """JSON of a value, whole numbers of any width included."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def count_characters(value: object) -> int:
    """Characters of all texts in a document, keys included."""
    total, level = 0, [value]
    while level:
        total += sum(len(text) for node in level for text in _texts(node))
        level = [child for node in level for child in _children(node)]
    return total


def refuse_foreign(name: str, value: object) -> None:
    """Refuse a field of a document of another format that no reply in JSON can give back.

    Args:
        name: of the field.
        value: as `codec.decode` made it: bytes, NaN, halves of surrogate pairs, wide numbers.

    Raises:
        HttpError: VALIDATION, PAYLOAD_TOO_LARGE.
    """
    level, num_members = [value], 0
    for _ in range(MAX_DEPTH + 1):
        if not all(map(_is_json, level)):
            raise invalid(_FOREIGN, "value_error", name)
        num_members += sum(len(node) for node in level if isinstance(node, dict | list))
        if num_members > MAX_MEMBERS:
            raise too_crowded(MAX_MEMBERS)
        level = [child for node in level for child in (*_children(node), *_keys(node))]
        if not level:
            return
    raise _too_deep()


def _is_json(node: object) -> bool:
    if isinstance(node, str):
        return node.isascii() or not _LONE_SURROGATE.search(node)
    if isinstance(node, float):
        return math.isfinite(node)
    if isinstance(node, int):
        return _INT64[0] <= node <= _INT64[1]
    if isinstance(node, dict):
        return all(isinstance(key, str) for key in node)
    return node is None or isinstance(node, list)


def _keys(node: object) -> Iterable[object]:
    return node.keys() if isinstance(node, Mapping) else ()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is beyond 64 bits")
    return number


def _check(document: object, *, has_escapes: bool) -> None:
    level = [document]
    for _ in range(MAX_DEPTH + 1):
        if has_escapes:
            _refuse_surrogates(text for node in level for text in _texts(node))
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    raise _too_deep()


def _refuse_surrogates(texts: Iterable[str]) -> None:
    for text in texts:
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            raise malformed("the body holds a lone surrogate; send valid Unicode") from None


def _texts(node: object) -> Iterable[str]:
    if isinstance(node, str):
        return (node,)
    return node.keys() if isinstance(node, Mapping) else ()


def _children(node: object) -> Iterable[object]:
    if isinstance(node, Mapping):
        return node.values()
    return node if isinstance(node, list) else ()


def _too_deep() -> HttpError:
    return malformed(f"the body is nested more than {MAX_DEPTH} levels deep")
