"""Reads a build file, strictly: models.toml -> `BuildFile`.

Compile options are those of `infinity-compile model`, read off the same table. Builds nothing.
"""

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.os_errors import os_errors_as_run_failed
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.builds.bounds import check_required_targets
from infinity_v3.compiler.builds.build_key import effective_options
from infinity_v3.compiler.builds.entry import (
    DEFAULT_JOBS,
    DEFAULT_OUT,
    DEFAULT_VERSION,
    LABEL,
    BuildFile,
    ModelEntry,
)
from infinity_v3.compiler.builds.values import (
    check_known,
    read_artifact_id,
    read_bounds,
    read_count,
    read_digests,
    read_name,
    read_table,
    read_text,
    read_version,
)
from infinity_v3.compiler.checkpoint import PATH_PREFIXES, check_source
from infinity_v3.compiler.checkpoint_files import find_files
from infinity_v3.compiler.config_sources import type_name, typed_value
from infinity_v3.compiler.cpu_targets import CPU_TARGETS
from infinity_v3.compiler.options import Option, RawValue, compile_options, convert
from infinity_v3.compiler.request import CompileRequest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BUILD_TABLE, DEFAULTS_TABLE, MODEL_TABLES = "build", "defaults", "model"
BUILD_KEYS = ("registry", "out", "jobs", DEFAULTS_TABLE)
_DECIDED = frozenset({"out"})
"""Options of `model` that a build decides itself."""
_OF_ONE_MODEL = frozenset({"checkpoint", "name", "revision", "expect", "expect-id"})
"""What cannot be a default, as it belongs to one model."""
_NOT_PASSED_AS_WRITTEN = frozenset({"checkpoint", "name", "revision", "label", "threads"})
_OWN_READERS: Mapping[str, Callable[[object, str], object]] = {
    "name": read_name,
    "version": read_version,
    "expect": read_digests,
    "expect-id": read_artifact_id,
    "gates": read_bounds,
    "push-to": read_name,
}
_OWN_FIELDS = {
    "expect": "expected_files",
    "expect-id": "expected_id",
    "gates": "gates",
    "push-to": "push_to",
}


def model_keys() -> tuple[str, ...]:
    """Return the keys of a `[[model]]`: the options of a compile, then those of a build."""
    options = [option.key for option in compile_options() if option.key not in _DECIDED]
    return tuple(dict.fromkeys((*options, *_OWN_READERS)))


def read_build_file(path: Path) -> BuildFile:
    """Read and check a build file. Relative paths in it are relative to its folder.

    Raises:
        UsageError: names the file, the entry and the key at fault.
    """
    document = _read_toml(path)
    for key in document:
        check_known(key, (BUILD_TABLE, MODEL_TABLES), f"{path}")
    place = f"{path}: [{BUILD_TABLE}]"
    build = read_table(document.get(BUILD_TABLE, {}), place)
    for key in build:
        check_known(key, BUILD_KEYS, place)
    out = path.parent / _text_of(build, "out", place, DEFAULT_OUT)
    defaults = _read_defaults(build.get(DEFAULTS_TABLE, {}), path)
    models = tuple(_models(document.get(MODEL_TABLES), path, defaults, out))
    _check_unique(models)
    return BuildFile(
        path=path,
        registry=_registry(build, place, path.parent),
        out=out,
        jobs=read_count(build.get("jobs", DEFAULT_JOBS), f"{place}: jobs"),
        models=models,
    )


def select_models(file: BuildFile, names: Iterable[str]) -> tuple[ModelEntry, ...]:
    """Return the entries of those names, in the file's order; no names = all.

    Raises:
        UsageError: a name that no entry has.
    """
    wanted = tuple(names)
    known = tuple(dict.fromkeys(entry.name for entry in file.models))
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"--only: {file.path} has no model {name!a}{nearest(name, known)}; "
                f"it has {', '.join(known)}"
            )
    return tuple(entry for entry in file.models if not wanted or entry.name in wanted)


def check_entries(entries: Iterable[ModelEntry]) -> None:
    """Refuse what can be seen to be wrong without a network: checkpoints, targets, and gates.

    Raises:
        UsageError: names the file, the entry and the key at fault.
        RunFailedError: a checkpoint cannot be read.
    """
    known = {target.name for target in CPU_TARGETS}
    for entry in entries:
        try:
            _check_checkpoint(entry.request)
        except UsageError as error:
            raise UsageError(f"{entry.place}: checkpoint: {error}") from error
        for name in entry.request.targets:
            if name not in known:
                raise UsageError(
                    f"{entry.place}: target: unknown target {name!a}{nearest(name, known)}"
                )
        check_required_targets(entry, entry.request.targets or known)


def _check_checkpoint(request: CompileRequest) -> None:
    check_source(request)
    path = Path(request.checkpoint)
    if path.is_dir():
        with os_errors_as_run_failed("read", path):
            find_files(path)


def registry_location(text: str, folder: Path) -> str:
    """Return a location with a directory in it made relative to `folder`; URLs stay."""
    is_url = "://" in text or text.startswith("file:")
    return text if is_url else str(folder / Path(text).expanduser())


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return dict(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise UsageError(f"{path}: cannot be read: {reason}; give a build file") from error
    except (ValueError, RecursionError) as error:  # malformed TOML, or not UTF-8
        raise UsageError(f"{path}: not valid TOML: {error}") from error


def _text_of(table: Mapping[str, object], key: str, place: str, default: str) -> str:
    return str(Path(read_text(table.get(key, default), f"{place}: {key}")).expanduser())


def _registry(build: Mapping[str, object], place: str, folder: Path) -> str | None:
    if "registry" not in build:
        return None
    return registry_location(read_text(build["registry"], f"{place}: registry"), folder)


def _read_defaults(value: object, path: Path) -> dict[str, object]:
    place = f"{path}: [{BUILD_TABLE}.{DEFAULTS_TABLE}]"
    table = read_table(value, place)
    for key in table:
        if key in _OF_ONE_MODEL:
            raise UsageError(f"{place}: {key}: belongs to one model; put it into its [[model]]")
    return _read_values(table, place)


def _models(
    value: object, path: Path, defaults: Mapping[str, object], out: Path
) -> Iterable[ModelEntry]:
    if not isinstance(value, list) or not value:
        found = "none" if value is None or value == [] else type_name(value)
        raise UsageError(f"{path}: expected one [[model]] or more, found {found}")
    for number, table in enumerate(value, start=1):
        place = f"{path}: [[model]] {number}"
        checked = read_table(table, place)
        if isinstance(checked.get("name"), str):
            place += f" ({checked['name']})"
        values = {**defaults, **_read_values(checked, place)}
        yield _entry(values, place, path.parent, out)


def _read_values(table: Mapping[str, object], place: str) -> dict[str, object]:
    """Values by key: of options as they are written, of a build's own keys as they are used."""
    options = {option.key: option for option in compile_options()}
    values: dict[str, object] = {}
    for key, value in table.items():
        where = f"{place}: {key}"
        if key in _DECIDED:
            raise UsageError(f"{where}: is decided by the build: <out>/<name>/<version>")
        check_known(key, model_keys(), place)
        reader = _OWN_READERS.get(key)
        if reader is not None:
            values[key] = reader(value, where)
        else:
            raw = typed_value(options[key], value, where)
            convert(options[key], raw, where)
            _check_labels(raw, where)
            values[key] = raw
    return values


def _check_labels(raw: RawValue, where: str) -> None:
    if isinstance(raw, dict) and LABEL in raw:
        raise UsageError(f"{where}: {LABEL}: is set by the build itself; choose another label")


def _entry(values: Mapping[str, object], place: str, folder: Path, out: Path) -> ModelEntry:
    for key in ("checkpoint", "name"):
        if key not in values:
            raise UsageError(f"{place}: {key}: expected a value, found none; every model has one")
    name, version = str(values["name"]), str(values.get("version", DEFAULT_VERSION))
    raw = _raw_options(values, folder)
    return ModelEntry(
        place=place,
        name=name,
        version=version,
        request=_request(raw, out / name / version, place),
        options={key: item for key, item in raw.items() if key not in _NOT_PASSED_AS_WRITTEN},
        **{_OWN_FIELDS[key]: values[key] for key in _OWN_FIELDS if key in values},  # type: ignore[arg-type]  # fields by name
    )


def _raw_options(values: Mapping[str, object], folder: Path) -> dict[str, RawValue]:
    """The options as `model` takes them, with paths that hold from any folder."""
    raw: dict[str, RawValue] = {
        option.key: values[option.key]  # type: ignore[misc]  # `typed_value` made them
        for option in compile_options()
        if option.key in values
    }
    raw["checkpoint"] = _checkpoint(str(raw["checkpoint"]), folder)
    if "kernel-cache" in raw:
        raw["kernel-cache"] = str(folder / Path(str(raw["kernel-cache"])).expanduser())
    return raw


def _checkpoint(text: str, folder: Path) -> str:
    path = folder / Path(text).expanduser()
    is_path = text.startswith(PATH_PREFIXES) or path.exists()
    return str(path.absolute()) if text.strip() and is_path else text


def _request(raw: Mapping[str, RawValue], out: Path, place: str) -> CompileRequest:
    options: dict[str, Option] = {option.key: option for option in compile_options()}
    fields = {
        options[key].field: convert(options[key], value, f"{place}: {key}")
        for key, value in raw.items()
    }
    try:
        return CompileRequest(out=out, **fields)  # type: ignore[arg-type]  # converted each
    except UsageError as error:
        raise UsageError(f"{place}: {str(error).removeprefix('--')}") from error


def _check_unique(models: Iterable[ModelEntry]) -> None:
    seen: dict[str, list[ModelEntry]] = {}
    for entry in models:
        before = seen.setdefault(entry.title, [])
        same = next((e for e in before if not e.is_templated or _inputs(e) == _inputs(entry)), None)
        if same is not None:
            raise UsageError(
                f"{entry.place}: version: {entry.title} is already that of another entry "
                f"({same.place.rpartition(': ')[2]}); give each its own name or version"
            )
        before.append(entry)


def _inputs(entry: ModelEntry) -> tuple[object, ...]:
    """What two entries share that come to one build key, as far as the file alone tells."""
    request = entry.request
    targets = frozenset(request.targets)
    return request.checkpoint, request.revision, targets, effective_options(request)
