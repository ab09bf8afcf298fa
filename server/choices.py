"""Which words a field of a body type takes. Knows nothing of values or messages."""

import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec.inspect


def choices_at(body_type: type[msgspec.Struct], path: str) -> tuple[str, ...]:
    """The words of the literal type at a path such as `messages[0].role`; empty if it has none."""
    types: list[Any] = [body_type]
    for name in re.sub(r"\[[^]]*\]", "", path).split("."):
        structs = [kind for kind in types if msgspec.inspect.is_struct_type(kind)]
        hints = [get_type_hints(struct) for struct in structs]
        types = [part for hint in hints if name in hint for part in _parts(hint[name])]
    words = (str(word) for kind in types if get_origin(kind) is Literal for word in get_args(kind))
    return tuple(dict.fromkeys(words))


def _parts(annotation: Any) -> Iterator[Any]:  # noqa: ANN401  # annotations have no type
    """Take unions and containers apart, down to literals and plain types."""
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal or not arguments:
        yield annotation
        return
    for argument in arguments:
        yield from _parts(argument)
