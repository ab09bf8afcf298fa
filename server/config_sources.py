"""Reads the sources of configuration: command line, environment, TOML file.

Each becomes a layer of checked settings with their origin. Knows nothing of precedence.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import BadValueError, Scalar, toml_type_name

_ENV_PREFIX = "INFINITY_"
_COMPILER_PREFIX = "INFINITY_COMPILE_"
_UNPREFIXED = ("MAX_SEQUENCE_LENGTH", "PORT")
_SIBLING_TABLES = frozenset({"cli"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one source says about one option; `is_array` marks a TOML array."""

    values: tuple[Scalar, ...]
    origin: str
    is_array: bool = False


Layer = dict[str, Setting]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayers:
    """The tables of one TOML file, weakest first; `models` holds the [[model]] tables."""

    path: Path
    top: Layer
    serve: Layer
    models: tuple[Layer, ...]


def read_flags(given: Mapping[str, Sequence[str]], options: Sequence[Option]) -> Layer:
    """Check the values of the command line.

    Args:
        given: option name -> values in the order typed; options that were not typed are absent.
        options: every option there is.
    """
    return {
        option.name: _text_setting(option, given[option.name], f"--{option.name}", "command line")
        for option in options
        if option.name in given
    }


def read_environment(
    environ: Mapping[str, str], options: Sequence[Option]
) -> tuple[Layer, list[str]]:
    """Check `INFINITY_*` variables.

    Returns:
        The layer, and warnings about variables that no option reads.
    """
    by_name = {option.env_name: option for option in options}
    by_word = [name.removeprefix(_ENV_PREFIX) for name in by_name]
    layer: Layer = {}
    for variable in _UNPREFIXED:
        option = by_name[_ENV_PREFIX + variable]
        if environ.get(variable):
            layer[option.name] = _env_setting(option, variable, environ[variable])
    warnings = []
    for variable in sorted(environ):
        if not variable.startswith(_ENV_PREFIX) or variable.startswith(_COMPILER_PREFIX):
            continue
        if variable not in by_name:
            hint = nearest(variable.removeprefix(_ENV_PREFIX), by_word, prefix=_ENV_PREFIX)
            warnings.append(
                f"environment variable {variable} is not an option of this server{hint}"
            )
        elif environ[variable]:
            option = by_name[variable]
            layer[option.name] = _env_setting(option, variable, environ[variable])
    return layer, warnings


def _env_setting(option: Option, variable: str, text: str) -> Setting:
    if option.name == "port" and text.startswith("tcp://"):
        raise UsageError(
            f"{variable}={text}: expected a port number; Kubernetes sets this variable for a "
            "Service of that name: set enableServiceLinks: false, or pass --port"
        )
    return _text_setting(option, (text,), variable, f"env {variable}")


def _text_setting(option: Option, texts: Sequence[str], where: str, origin: str) -> Setting:
    if not option.is_per_model:
        kept = texts if option.is_repeatable else texts[-1:]
        return Setting(values=tuple(_parse(option, text, where) for text in kept), origin=origin)
    elements = [element for text in texts for element in text.split(";")]
    return Setting(values=tuple(_parse(option, text, where) for text in elements), origin=origin)


def _parse(option: Option, text: str, where: str) -> Scalar:
    if option.is_optional and text == "none":
        return None
    return _checked(option, where, text, lambda: option.value_type.parse(text))


def _checked(option: Option, where: str, found: object, read: Callable[[], Scalar]) -> Scalar:
    try:
        return read()
    except BadValueError as error:
        shown = "***" if option.is_secret else found
        separator = "=" if where.isupper() else " "
        raise UsageError(f"{where}{separator}{shown}: {error}") from None


def read_file(path: Path, options: Sequence[Option]) -> FileLayers:
    """Read and check a TOML file.

    Raises:
        UsageError: the file cannot be read, is not TOML, has an unknown key or table, or
            a value of the wrong type.
    """
    document = _load_toml(path)
    known = {option.name: option for option in options if option.in_file}
    reader = _TableReader(path, known)
    serve = document.pop("serve", {})
    models = document.pop("model", [])
    for table in _SIBLING_TABLES:
        document.pop(table, None)
    if not isinstance(serve, dict):
        raise UsageError(f"{path}: serve: expected a table [serve], found {toml_type_name(serve)}")
    if not isinstance(models, list) or not all(isinstance(table, dict) for table in models):
        raise UsageError(
            f"{path}: model: expected tables [[model]], found {toml_type_name(models)}"
        )
    return FileLayers(
        path=path,
        top=reader.read(document, "top level"),
        serve=reader.read(serve, "[serve]"),
        models=tuple(
            reader.read_model(table, number) for number, table in enumerate(models, start=1)
        ),
    )


def _load_toml(path: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"--config {path}: the file cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None


@dataclass(frozen=True, slots=True)
class _TableReader:
    path: Path
    known: Mapping[str, Option]

    def read(self, table: Mapping[str, object], title: str) -> Layer:
        return {
            key: self._setting(self._option(key, value, title, self.known), key, value, title)
            for key, value in table.items()
        }

    def read_model(self, table: Mapping[str, object], number: int) -> Layer:
        title = f"[[model]] #{number}"
        allowed = {name: option for name, option in self.known.items() if option.is_per_model}
        if "model-id" not in table:
            raise UsageError(
                f"{self.path}: {title}: model-id is missing; every [[model]] needs one"
            )
        layer = {}
        for key, value in table.items():
            if isinstance(value, list):
                raise UsageError(f"{self.path}: {title} {key}: expected one value, found an array")
            option = self._option(key, value, title, allowed)
            layer[key] = self._setting(option, key, value, title)
        return layer

    def _option(self, key: str, value: object, title: str, known: Mapping[str, Option]) -> Option:
        if key not in known:
            noun = "table" if isinstance(value, dict) else "key"
            if key in self.known:
                raise UsageError(
                    f"{self.path}: {title} {key}: not a per-model option; move it to [serve]"
                )
            tables = ("serve", "model") if noun == "table" else ()
            hint = nearest(key, (*known, *tables))
            raise UsageError(f"{self.path}: {title} {key}: unknown {noun}{hint}")
        return known[key]

    def _setting(self, option: Option, key: str, value: object, title: str) -> Setting:
        where = f"{self.path}: {title} {key}"
        values = self._elements(option, value, where)
        return Setting(
            values=tuple(self._check(option, element, where) for element in values),
            origin=f"{self.path} {title}",
            is_array=isinstance(value, list),
        )

    def _elements(self, option: Option, value: object, where: str) -> list[object]:
        if not isinstance(value, list):
            if option.is_repeatable:
                raise UsageError(f"{where}: expected an array, found {toml_type_name(value)}")
            return [value]
        if not (option.is_per_model or option.is_repeatable):
            raise UsageError(f"{where}: expected one value, found an array")
        if not value:
            raise UsageError(f"{where}: expected at least one value, found an empty array")
        return value

    def _check(self, option: Option, value: object, where: str) -> Scalar:
        if option.is_optional and value == "none":
            return None
        try:
            return option.value_type.check(value)
        except BadValueError as error:
            raise UsageError(f"{where}: {error}") from None
