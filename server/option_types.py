"""Value types of options: how text and TOML values become checked Python values.

Knows nothing of flag names, sources or precedence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

Scalar = str | int | float | bool | Path | None


class BadValueError(Exception):
    """A value does not fit its type; the message says what was expected."""


class ValueType(Protocol):
    """Obligation: `parse` and `check` return the same kind of value or raise BadValueError."""

    @property
    def metavar(self) -> str: ...

    def parse(self, text: str) -> Scalar:
        """Read a flag or environment value."""
        ...

    def check(self, value: object) -> Scalar:
        """Accept a TOML value of the right type; nothing is coerced but int to float."""
        ...


def toml_type_name(value: object) -> str:
    """TOML's word for the type of a parsed value, with its article."""
    names = {bool: "boolean", int: "integer", float: "float", str: "string", list: "array"}
    name = names.get(type(value), "table" if isinstance(value, dict) else type(value).__name__)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class IntType:
    """An integer within bounds, both inclusive."""

    minimum: int = 0
    maximum: int | None = None
    metavar: str = "INT"

    def parse(self, text: str) -> int:
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 18):
            raise BadValueError(f"expected an integer, found {text!r}")
        return self._bounded(int(text))

    def check(self, value: object) -> int:
        if type(value) is not int:
            raise BadValueError(f"expected an integer, found {toml_type_name(value)}")
        return self._bounded(value)

    def _bounded(self, value: int) -> int:
        if value < self.minimum or (self.maximum is not None and value > self.maximum):
            upper = "" if self.maximum is None else f" and at most {self.maximum}"
            raise BadValueError(
                f"expected an integer of at least {self.minimum}{upper}, found {value}"
            )
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsType:
    """A number of seconds, zero or more."""

    metavar: str = "SECONDS"
    allow_zero: bool = True

    def parse(self, text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise BadValueError(f"expected seconds, found {text!r}") from None
        return self._bounded(value)

    def check(self, value: object) -> float:
        if type(value) not in {int, float}:
            raise BadValueError(f"expected a float, found {toml_type_name(value)}")
        return self._bounded(float(value))  # type: ignore[arg-type]  # narrowed by the line above

    def _bounded(self, value: float) -> float:
        is_low = value < 0 or (value == 0 and not self.allow_zero)
        if is_low or not value <= 86400:
            least = "0" if self.allow_zero else "more than 0"
            raise BadValueError(f"expected {least} to 86400 seconds, found {value:g}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class BoolType:
    """`true` or `false`; a bare flag means true."""

    metavar: str = "[true|false]"

    def parse(self, text: str) -> bool:
        values = {"true": True, "false": False, "1": True, "0": False}
        if text.lower() not in values:
            raise BadValueError(f"expected true or false, found {text!r}")
        return values[text.lower()]

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise BadValueError(f"expected a boolean, found {toml_type_name(value)}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceType:
    """One of a few words."""

    choices: Sequence[str]

    @property
    def metavar(self) -> str:
        return f"[{'|'.join(self.choices)}]"

    def parse(self, text: str) -> str:
        if text not in self.choices:
            raise BadValueError(f"expected one of {', '.join(self.choices)}, found {text!r}")
        return text

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValueError(f"expected a string, found {toml_type_name(value)}")
        return self.parse(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextType:
    """Any text; `allow_empty` where the empty text has a meaning of its own."""

    metavar: str = "TEXT"
    allow_empty: bool = False

    def parse(self, text: str) -> str:
        if not text and not self.allow_empty:
            raise BadValueError("expected a value, found an empty one")
        return text

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValueError(f"expected a string, found {toml_type_name(value)}")
        return self.parse(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternType:
    """A text of a certain form, which `expected` names; errors never show the value."""

    pattern: str
    expected: str
    metavar: str = "TEXT"

    def parse(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise BadValueError(f"expected {self.expected}")
        return text

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValueError(f"expected a string, found {toml_type_name(value)}")
        return self.parse(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathType:
    """A file system path; `~` is expanded."""

    metavar: str = "PATH"

    def parse(self, text: str) -> Path:
        if not text:
            raise BadValueError("expected a path, found an empty value")
        return Path(text).expanduser()

    def check(self, value: object) -> Path:
        if not isinstance(value, str):
            raise BadValueError(f"expected a string, found {toml_type_name(value)}")
        return self.parse(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntOrWordType:
    """An integer, or one word that is kept as `None` (for example `auto`)."""

    word: str
    number: IntType

    @property
    def metavar(self) -> str:
        return f"INT|{self.word}"

    def parse(self, text: str) -> int | None:
        return None if text == self.word else self.number.parse(text)

    def check(self, value: object) -> int | None:
        return None if value == self.word else self.number.check(value)
