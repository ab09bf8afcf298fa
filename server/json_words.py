"""Names of JSON's types, for messages to clients. Knows no body and no route."""

import re

_MARKED = re.compile(r"`[^`]*`")
_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}
"""What the library that checks bodies calls otherwise than JSON does."""


def kind_of(value: object) -> str:
    """What a decoded JSON value is, with an article where it has one.

    Args:
        value: as a JSON or MessagePack decoder gives it.
    """
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, list | tuple):
        return "a list"
    return "an object" if isinstance(value, dict) else "binary data"


def in_json_words(reason: str) -> str:
    """The reason why a value does not fit, with JSON's names instead of Python's.

    Args:
        reason: by msgspec, without its path: "Expected `str | null`, got `int`".
    """
    if not reason.startswith("Expected `"):
        return reason  # may quote the client
    return _MARKED.sub(lambda found: _renamed(found[0]), reason)


def _renamed(types: str) -> str:
    return re.sub(r"\w+", lambda word: _WORDS.get(word[0], word[0]), types)
