"""Merges a compile's options: default < TOML top level < `[compile]` < environment < flags.

The higher source replaces a value as a whole. Knows nothing of click and of what a compile does.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.options import (
    ENV_PREFIX,
    Option,
    RawValue,
    compile_options,
    convert,
    env_name,
    parse_texts,
)
from infinity_v3.compiler.request import CompileRequest, ValueType

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

CONFIG_ENV = env_name("config")
COMPILE_TABLE = "compile"
# Tables of the sibling programs, so that one file may serve them all.
SIBLING_TABLES = frozenset({"cli", "model", "serve"})
# Read by the commands on registries and by the server.
SHARED_KEYS = frozenset({"registry"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRequest:
    """A request and what the user should be told about its sources."""

    request: CompileRequest
    warnings: tuple[str, ...]


def resolve_request(
    *, flags: Mapping[str, tuple[str, ...]], environ: Mapping[str, str], config: Path | None
) -> ResolvedRequest:
    """Merge all sources into one checked request.

    Args:
        flags: key -> the strings given on the command line; keys that were not given are absent.
        environ: the process environment.
        config: file of `--config`; None = the file named by the environment, if any.

    Raises:
        UsageError: an unknown key, a malformed value or a missing required one, named with its
            source.
    """
    config = config or _config_from_environment(environ)
    values: dict[str, object] = {}
    if config is not None:
        values.update(_values_of_file(config))
    values.update(_values_of_environment(environ))
    values.update(_values_of_flags(flags))
    _require(values)
    return ResolvedRequest(request=_build(values), warnings=_unknown_variables(environ))


def _build(values: dict[str, Any]) -> CompileRequest:
    # Any: every value was converted to its field's type by the field's own converter.
    return CompileRequest(**values)


def _require(values: Mapping[str, object]) -> None:
    for field, how in (("checkpoint", "the CHECKPOINT argument"), ("out", "--out DIR")):
        if field not in values:
            raise UsageError(
                f"{field}: expected a value, found none; give {how}, {env_name(field)} or the "
                "key in --config"
            )


def _config_from_environment(environ: Mapping[str, str]) -> Path | None:
    name = environ.get(CONFIG_ENV)
    return Path(name).expanduser() if name else None


def _values_of_flags(flags: Mapping[str, tuple[str, ...]]) -> dict[str, object]:
    given: dict[str, object] = {}
    for option in compile_options():
        if option.key in flags:
            where = "CHECKPOINT" if option.key == "checkpoint" else f"--{option.key}"
            raw = parse_texts(option, flags[option.key], where)
            given[option.field] = convert(option, raw, where)
    return given


def _values_of_environment(environ: Mapping[str, str]) -> dict[str, object]:
    given: dict[str, object] = {}
    for option in compile_options():
        text = environ.get(option.env)
        if text:
            raw = parse_texts(option, _split(option, text), option.env)
            given[option.field] = convert(option, raw, option.env)
    return given


def _split(option: Option, text: str) -> tuple[str, ...]:
    if option.value_type not in (ValueType.TEXTS, ValueType.PAIRS):
        return (text,)
    parts = tuple(text.split(";"))
    if "" in parts:
        raise UsageError(
            f"{option.env}: expected values separated by ';', found an empty one in {text!r}"
        )
    return parts


def _unknown_variables(environ: Mapping[str, str]) -> tuple[str, ...]:
    known = {CONFIG_ENV, *(option.env for option in compile_options())}
    return tuple(
        f"{name} is not a variable of infinity-compile and was ignored{nearest(name, known)}"
        for name in sorted(environ)
        if name.startswith(ENV_PREFIX) and name not in known
    )


def _values_of_file(path: Path) -> dict[str, object]:
    document = read_toml(path)
    table = document.pop(COMPILE_TABLE, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: {COMPILE_TABLE}: expected a table, found {type_name(table)}")
    top = {key: value for key, value in document.items() if key not in SIBLING_TABLES | SHARED_KEYS}
    return _values_of_table(top, f"{path}:") | _values_of_table(table, f"{path}: [compile]")


def read_toml(path: Path) -> dict[str, object]:
    """Read a configuration file.

    Raises:
        UsageError: it cannot be read, or is no TOML.
    """
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"--config: {path} cannot be read: {reason.lower()}") from error
    except ValueError as error:  # malformed TOML, or bytes that are not UTF-8
        raise UsageError(f"--config: {path} is not valid TOML: {error}") from error


def _values_of_table(table: Mapping[str, object], prefix: str) -> dict[str, object]:
    options = {option.key: option for option in compile_options()}
    values: dict[str, object] = {}
    for key, value in table.items():
        where = f"{prefix} {key}"
        if key == "config":
            raise UsageError(f"{where}: not allowed inside a file; give --config or {CONFIG_ENV}")
        if key not in options:
            raise UsageError(f"{where}: unknown key{nearest(key, options)}")
        option = options[key]
        values[option.field] = convert(option, typed_value(option, value, where), where)
    return values


def typed_value(option: Option, value: object, where: str) -> RawValue:
    """Check a TOML value's type; one string stands for an array of one.

    Raises:
        UsageError: it is of another type; begins with `where`.
    """
    typed = _READERS[option.value_type](value)
    if typed is None:
        raise UsageError(f"{where}: expected {option.value_type.value}, found {type_name(value)}")
    return typed


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _choice(value: object) -> bool | None:
    return value if isinstance(value, bool) else None


def _texts(value: object) -> tuple[str, ...] | None:
    items = [value] if isinstance(value, str) else value
    if isinstance(items, list) and all(isinstance(item, str) for item in items):
        return tuple(items)
    return None


def _pairs(value: object) -> dict[str, str] | None:
    if isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
        return dict(value)
    return None


_READERS: Mapping[ValueType, Callable[[object], RawValue | None]] = {
    ValueType.TEXT: _text,
    ValueType.COUNT: _count,
    ValueType.TEXTS: _texts,
    ValueType.PAIRS: _pairs,
    ValueType.CHOICE: _choice,
}


def type_name(value: object) -> str:
    """Say in words what a TOML value is."""
    # bool before int: a bool is an int.
    names = (
        (bool, "a boolean"),
        (int, "a whole number"),
        (float, "a float"),
        (str, "a string"),
        (dict, "a table"),
    )
    for kind, name in names:
        if isinstance(value, kind):
            return name
    if isinstance(value, list):
        odd = next((item for item in value if not isinstance(item, str)), None)
        return "an array" if odd is None else f"an array that holds {type_name(odd)}"
    return "a date or time"
