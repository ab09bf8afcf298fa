"""Reads options from a TOML file. Knows nothing of precedence or of other sources."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.server.config_sources import Layer, Setting
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import BadValueError, Scalar, toml_type_name

# Tables of the sibling programs, so that one file may serve them all.
MAX_FILE_BYTES = 1 << 20
_SIBLING_TABLES = frozenset({"cli", "compile"})


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayers:
    """The tables of one TOML file, weakest first; `models` holds the [[model]] tables."""

    path: Path
    top: Layer
    serve: Layer
    models: tuple[Layer, ...]


def read_file(path: Path, options: Sequence[Option]) -> FileLayers:
    """Read and check a TOML file.

    Raises:
        UsageError: the file cannot be read, is not TOML, has an unknown key or table, or
            a value of the wrong type.
    """
    document = _load_toml(path)
    reader = _TableReader(path, {option.name: option for option in options})
    serve = document.pop("serve", {})
    models = document.pop("model", [])
    for name in _SIBLING_TABLES:
        if isinstance(document.get(name), dict):
            del document[name]
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
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise UsageError(
                f"--config {path}: larger than {MAX_FILE_BYTES} bytes, so no TOML file"
            )
        return tomllib.loads(data.decode())
    except OSError as error:
        raise UsageError(f"--config {path}: the file cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not a TOML file: {error}") from None
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply") from None


def _is_table(value: object) -> bool:
    """Whether it was written as [name] or [[name]]."""
    rows = value if isinstance(value, list) and value else [value]
    return all(isinstance(row, dict) for row in rows)


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
            noun = "table" if _is_table(value) else "key"
            if key in self.known:
                raise UsageError(
                    f"{self.path}: {title} {key}: not a per-model option; move it to [serve]"
                )
            tables = ("serve", "model") if noun == "table" else ()
            hint = nearest(key, (*known, *tables))
            raise UsageError(f"{self.path}: {title} {key}: unknown {noun}{hint}")
        if not known[key].in_file:
            raise UsageError(f"{self.path}: {title} {key}: not allowed inside a configuration file")
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
