"""Value types of options: how text and TOML values become checked Python values.

Knows nothing of flag names, sources or precedence.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

# What undecodable bytes of an argument or a variable become.
_SURROGATES = re.compile("[\ud800-\udfff]")
_MAX_DIGITS = 18
_SWITCH_WORDS = {"true": True, "false": False, "1": True, "0": False}

Scalar = str | int | float | bool | Path | None


class BadValueError(Exception):
    """A value does not fit its type; the message says what was expected."""


class ValueType(Protocol):
    """Obligation: `parse` and `check` return the same kind of value or raise BadValueError."""

    @property
    def metavar(self) -> str: ...

    @property
    def bare_value(self) -> str | None:
        """What a flag without a value means; None = it needs one."""
        ...

    def parse(self, text: str) -> Scalar:
        """Read a flag or environment value."""
        ...

    def check(self, value: object) -> Scalar:
        """Accept a TOML value of the right type; nothing is coerced but int to float."""
        ...


def _expanded(path: Path) -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        raise BadValueError(f"expected a path, found no home directory for {path}") from None


def toml_type_name(value: object) -> str:
    """TOML's word for the type of a parsed value, with its article."""
    names = {bool: "boolean", int: "integer", float: "float", str: "string", list: "array"}
    name = names.get(type(value), "table" if isinstance(value, dict) else type(value).__name__)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


class ValuedType:
    """Base of types whose flags need a value."""

    __slots__ = ()

    @property
    def bare_value(self) -> str | None:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class IntType(ValuedType):
    """An integer within bounds, both inclusive."""

    minimum: int = 0
    maximum: int | None = None
    metavar: str = "INT"

    def parse(self, text: str) -> int:
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if not (digits.isascii() and digits.isdigit()):
            raise BadValueError(f"expected an integer, found {text!r}")
        if len(digits) > _MAX_DIGITS:
            raise self._out_of_bounds(text)
        return self._bounded(int(text))

    def check(self, value: object) -> int:
        if type(value) is not int:
            raise BadValueError(f"expected an integer, found {toml_type_name(value)}")
        return self._bounded(value)

    def _bounded(self, value: int) -> int:
        if value < self.minimum or (self.maximum is not None and value > self.maximum):
            raise self._out_of_bounds(str(value))
        return value

    def _out_of_bounds(self, found: str) -> BadValueError:
        upper = "" if self.maximum is None else f" and at most {self.maximum}"
        return BadValueError(
            f"expected an integer of at least {self.minimum}{upper}, found {found}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondsType(ValuedType):
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

    @property
    def bare_value(self) -> str:
        return "true"

    def parse(self, text: str) -> bool:
        if text.lower() not in _SWITCH_WORDS:
            raise BadValueError(f"expected true or false, found {text!r}")
        return _SWITCH_WORDS[text.lower()]

    def check(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise BadValueError(f"expected a boolean, found {toml_type_name(value)}")
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceType(ValuedType):
    """One of a few words; `metavar` replaces a list too long for a line of help."""

    choices: Sequence[str]
    metavar: str = ""

    def __post_init__(self) -> None:
        if not self.metavar:
            object.__setattr__(self, "metavar", f"[{'|'.join(self.choices)}]")

    def parse(self, text: str) -> str:
        if text not in self.choices:
            raise BadValueError(f"expected one of {', '.join(self.choices)}, found {text!r}")
        return text

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValueError(f"expected a string, found {toml_type_name(value)}")
        return self.parse(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextType(ValuedType):
    """Any text; `allow_empty` where the empty text has a meaning of its own."""

    metavar: str = "TEXT"
    allow_empty: bool = False

    def parse(self, text: str) -> str:
        if not text and not self.allow_empty:
            raise BadValueError("expected a value, found an empty one")
        if _SURROGATES.search(text):
            raise BadValueError("expected UTF-8")
        return text

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValueError(f"expected a string, found {toml_type_name(value)}")
        return self.parse(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternType(ValuedType):
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
class PathType(ValuedType):
    """A file system path; `~` is expanded."""

    metavar: str = "PATH"

    def parse(self, text: str) -> Path:
        if not text:
            raise BadValueError("expected a path, found an empty value")
        if "\0" in text:
            raise BadValueError("expected a path, found a NUL in it")
        return _expanded(Path(text))

    def check(self, value: object) -> Path:
        if not isinstance(value, str):
            raise BadValueError(f"expected a string, found {toml_type_name(value)}")
        return self.parse(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntOrWordType(ValuedType):
    """An integer, or one word that is kept as `None` (for example `auto`)."""

    word: str
    number: IntType

    @property
    def metavar(self) -> str:
        return f"INT|{self.word}"

    def parse(self, text: str) -> int | None:
        return None if text == self.word else self.number.parse(text)

    def check(self, value: object) -> int | None:
        if isinstance(value, str) and value != self.word:
            raise BadValueError(f'expected an integer or "{self.word}", found {value!r}')
        return None if value == self.word else self.number.check(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchType:
    """`true` or `false` as with `BoolType`, or one more word; kept as the word."""

    word: str

    @property
    def metavar(self) -> str:
        return f"[true|false|{self.word}]"

    @property
    def bare_value(self) -> str:
        return "true"

    def parse(self, text: str) -> str:
        lower = text.lower()
        if lower == self.word:
            return self.word
        if lower not in _SWITCH_WORDS:
            raise BadValueError(f"expected true, false or {self.word}, found {text!r}")
        return "true" if _SWITCH_WORDS[lower] else "false"

    def check(self, value: object) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if value != self.word:
            found = repr(value) if isinstance(value, str) else toml_type_name(value)
            raise BadValueError(f'expected a boolean or "{self.word}", found {found}')
        return self.word


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceListType(ValuedType):
    """Ordinals of accelerators such as `0,1`, each once; or `auto` for all visible ones."""

    metavar: str = "N,N...|auto"

    def parse(self, text: str) -> str:
        if text == "auto":
            return text
        ordinals = [self._ordinal(part, text) for part in text.split(",")]
        repeated = next((one for one in ordinals if ordinals.count(one) > 1), None)
        if repeated is not None:
            raise BadValueError(f"expected every device once, found {repeated} twice")
        return ",".join(map(str, ordinals))

    def check(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValueError(f'expected a string such as "0,1", found {toml_type_name(value)}')
        return self.parse(value)

    def _ordinal(self, part: str, text: str) -> int:
        if not (part.isascii() and part.isdigit() and len(part) <= 4):
            raise BadValueError(f"expected 'auto' or ordinals such as 0,1, found {text!r}")
        return int(part)
