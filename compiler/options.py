"""The options of a compile, read off the fields of `CompileRequest`, and their conversion.

Knows the names of flags, environment variables and TOML keys; opens no file and reads no
environment.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import TypeVar

from infinity_v3.artifacts.decision import DecisionProtocol
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import Kind, PoolingMode
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.request import (
    COMPILED_POOLINGS,
    CompileRequest,
    ValueType,
)

ENV_PREFIX = "INFINITY_COMPILE_"

RawValue = str | int | bool | tuple[str, ...] | dict[str, str]
_CHOICES = {"true": True, "1": True, "false": False, "0": False}
_Choice = TypeVar("_Choice", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One field of `CompileRequest` as the user names it.

    Attributes:
        field: attribute of `CompileRequest`.
        key: TOML key, which is also the flag without its dashes.
        value_type: how the value is written.
    """

    field: str
    key: str
    value_type: ValueType
    help: str
    metavar: str

    @property
    def env(self) -> str:
        """Name of the environment variable."""
        return env_name(self.key)


def env_name(key: str) -> str:
    """Return the variable of a key: "kernel-cache" -> "INFINITY_COMPILE_KERNEL_CACHE"."""
    return ENV_PREFIX + key.upper().replace("-", "_")


def compile_options() -> tuple[Option, ...]:
    """Return every option, in the order of the fields."""
    return tuple(
        Option(
            field=entry.name,
            key=entry.metadata["key"],
            value_type=entry.metadata["type"],
            help=entry.metadata["help"],
            metavar=entry.metadata["metavar"],
        )
        for entry in fields(CompileRequest)
    )


def parse_texts(option: Option, texts: tuple[str, ...], where: str) -> RawValue:
    """Read the strings of a flag or variable as the option's type.

    Args:
        option: the option that was given.
        texts: one string per time it was given; single-valued options take the last.
        where: named in errors, e.g. "--threads".

    Raises:
        UsageError: a string that does not read as the type.
    """
    if option.value_type is ValueType.TEXTS:
        return texts
    if option.value_type is ValueType.PAIRS:
        return _parse_pairs(texts, where)
    if option.value_type is ValueType.COUNT:
        return _parse_count(texts[-1], where)
    if option.value_type is ValueType.CHOICE:
        return _parse_choice(texts[-1], where)
    return texts[-1]


def convert(option: Option, raw: RawValue, where: str) -> object:
    """Turn a value of the right written type into the field's type.

    Raises:
        UsageError: a word that is not among the choices.
    """
    converter = _CONVERTERS.get(option.field)
    return raw if converter is None else converter(raw, where)


def _parse_count(text: str, where: str) -> int:
    # int() also takes "1_000", " 7 " and other digits; a flag should not.
    if not (text.isascii() and text.removeprefix("-").isdigit()):
        raise UsageError(f"{where}: expected {ValueType.COUNT.value}, found {text!r}")
    if len(text) > 18:
        raise UsageError(f"{where}: expected a whole number of at most 18 digits, found {text!r}")
    return int(text)


def _parse_choice(text: str, where: str) -> bool:
    if text not in _CHOICES:
        raise UsageError(f"{where}: expected {ValueType.CHOICE.value}, found {text!r}")
    return _CHOICES[text]


def _parse_pairs(texts: tuple[str, ...], where: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"{where}: expected KEY=VALUE, found {text!r}")
        if key in pairs:
            raise UsageError(f"{where}: {key!r} is given twice; name each label once")
        pairs[key] = value
    return pairs


def _choose(choices: Iterable[_Choice], word: str, where: str) -> _Choice:
    by_word = {choice.value: choice for choice in choices}
    if word not in by_word:
        expected = f"{'one of ' if len(by_word) > 1 else ''}{', '.join(by_word)}"
        raise UsageError(f"{where}: expected {expected}, found {word!r}{nearest(word, by_word)}")
    return by_word[word]


def _to_path(raw: RawValue, where: str) -> Path:
    if raw == "":
        raise UsageError(f"{where}: expected a directory, found an empty string")
    return Path(str(raw)).expanduser()


def _to_kind(raw: RawValue, where: str) -> Kind:
    return _choose(Kind, str(raw), where)


def _to_poolings(raw: RawValue, where: str) -> tuple[PoolingMode, ...]:
    assert isinstance(raw, tuple), "pooling is read as an array; this is a bug"
    # The request refuses splade with its own reason.
    splade = PoolingMode.SPLADE
    return tuple(
        splade if word == splade.value else _choose(COMPILED_POOLINGS, word, where) for word in raw
    )


def _to_protocol(raw: RawValue, where: str) -> DecisionProtocol:
    return _choose(DecisionProtocol, str(raw), where)


_CONVERTERS: Mapping[str, Callable[[RawValue, str], object]] = {
    "out": _to_path,
    "kernel_cache": _to_path,
    "task": _to_kind,
    "pooling": _to_poolings,
    "decision_protocol": _to_protocol,
}
