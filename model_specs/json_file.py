"""Reads JSON files of a checkpoint into typed values, each mistake one sentence with file and key.

Knows nothing of what the keys mean.
"""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from infinity_v3.artifacts.errors import RunFailedError, UsageError

MAX_JSON_BYTES = 64 * 1024 * 1024
_SHOWN_CHARACTERS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """A JSON object and where it stands; a key whose value is null counts as absent.

    Attributes:
        file: the file as sentences name it.
        keys: keys that lead to this object from the top of the file, empty at the top.
        values: the parsed object.
    """

    file: Path
    values: Mapping[str, object]
    keys: tuple[str, ...] = ()

    def has(self, key: str) -> bool:
        """Whether the key is there with a value other than null."""
        return self.values.get(key) is not None

    def integer(self, key: str, *, minimum: int, maximum: int) -> int | None:
        """The whole number at `key`, None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= maximum:
            self.refuse(key, f"a whole number from {minimum} to {maximum}")
        return value

    def require_positive(self, key: str) -> None:
        """Refuse anything but a finite number above 0 at `key`, which may be absent."""
        value = self.values.get(key)
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            self.refuse(key, "a finite number above 0")
        # Not isfinite(), which whole numbers beyond a float overflow.
        if not 0 < value <= sys.float_info.max:
            self.refuse(key, "a finite number above 0")

    def text(self, key: str) -> str | None:
        """The string at `key`, None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, str) or not _is_encodable(value):
            self.refuse(key, "a text")
        return value

    def flag(self, key: str, *, default: bool) -> bool:
        """The boolean at `key`, `default` when absent."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.refuse(key, "true or false")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """The list of strings at `key`, empty when absent."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(key, "a list of texts")
        items = tuple(item for item in value if isinstance(item, str) and _is_encodable(item))
        if len(items) != len(value):
            self.refuse(key, "a list of texts")
        return items

    def child(self, key: str) -> "JsonObject | None":
        """The object at `key`, None when absent."""
        value = self.values.get(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            self.refuse(key, "an object")
        return JsonObject(file=self.file, values=value, keys=(*self.keys, key))

    def children(self, key: str) -> "tuple[JsonObject, ...]":
        """The objects in the list at `key`, empty when absent."""
        value = self.values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list):
            self.refuse(key, "a list of objects")
        return _as_objects(self.file, (*self.keys, key), value)

    def where(self, key: str) -> str:
        """File and key as sentences name them, e.g. `config.json: text_config.hidden_size`."""
        return f"{self.file}: {_dotted((*self.keys, key))}"

    def refuse(self, key: str, expected: str) -> NoReturn:
        """Raise the sentence for a value that isn't what was expected."""
        raise UsageError(
            f"{self.where(key)}: expected {expected}, found {shown(self.values.get(key))}; "
            "correct the file or fetch the checkpoint again"
        )


def read_object(file: Path) -> JsonObject:
    """Read a file that holds one JSON object.

    Raises:
        UsageError: the file is absent, larger than 64 MiB, no JSON, has a key twice or holds no
            object.
        RunFailedError: the file can't be read.
    """
    value = _read(file)
    if not isinstance(value, dict):
        raise UsageError(f"{file}: expected a JSON object, found {shown(value)}")
    return JsonObject(file=file, values=value)


def read_objects(file: Path) -> tuple[JsonObject, ...]:
    """Read a file that holds a list of JSON objects; errors as in `read_object`."""
    value = _read(file)
    if not isinstance(value, list):
        raise UsageError(f"{file}: expected a JSON list, found {shown(value)}")
    return _as_objects(file, (), value)


def is_present(file: Path) -> bool:
    """Whether there is an entry of that name; a link to nowhere is one, and reading it an error."""
    return os.path.lexists(file)


def _as_objects(file: Path, keys: tuple[str, ...], items: list[object]) -> tuple[JsonObject, ...]:
    objects = []
    for index, item in enumerate(items):
        path = (*keys, f"[{index}]")
        if not isinstance(item, dict):
            raise UsageError(f"{file}: {_dotted(path)}: expected an object, found {shown(item)}")
        objects.append(JsonObject(file=file, values=item, keys=path))
    return tuple(objects)


def _read(file: Path) -> object:
    text = _read_text(file)
    try:
        return json.loads(text, object_pairs_hook=_unique)
    except _DuplicateKeyError as error:
        raise UsageError(f"{file}: {error.key}: the key is there twice; keep one") from None
    except RecursionError:
        raise UsageError(
            f"{file}: expected a configuration, found JSON nested too deeply"
        ) from None
    except ValueError as error:
        raise UsageError(
            f"{file}: expected JSON, found something else ({error}); fetch the checkpoint again"
        ) from None


def _read_text(file: Path) -> str:
    try:
        if not file.is_file():
            raise UsageError(f"{file}: expected a file, found none; fetch the checkpoint again")
        with file.open("rb") as stream:
            content = stream.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise RunFailedError(f"{file}: can't be read: {error.strerror}") from None
    if len(content) > MAX_JSON_BYTES:
        raise UsageError(f"{file}: expected at most {MAX_JSON_BYTES} bytes (64 MiB), found more")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file}: expected UTF-8, found byte {error.start} that isn't") from None


class _DuplicateKeyError(Exception):
    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values:
            raise _DuplicateKeyError(_shortened(key))
        values[key] = value
    return values


def _dotted(keys: tuple[str, ...]) -> str:
    return ".".join(_shortened(key) for key in keys).replace(".[", "[")


def _is_encodable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def shown(value: object) -> str:
    """A value of a file as sentences quote it: one short line of printable ASCII."""
    if value is None:
        return "nothing"
    # A list of a million items would be written out in full only to be cut.
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_CHARACTERS:
        return "a larger number"
    return _shortened(json.dumps(value))


def _shortened(text: str) -> str:
    printable = text.encode("ascii", "backslashreplace").decode("ascii")
    one_line = "".join(character if character.isprintable() else "?" for character in printable)
    return one_line if len(one_line) <= _SHOWN_CHARACTERS else one_line[:_SHOWN_CHARACTERS] + "..."
