"""Merges the layers of configuration; the higher source replaces the lower as a whole.

Owns precedence and per-model lists. Knows nothing of how a source is read.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.server.config import Configuration, ModelConfig, ServeConfig, all_options
from infinity_v3.server.config_checks import check_configuration
from infinity_v3.server.config_file import FileLayers, read_file
from infinity_v3.server.config_sources import (
    Layer,
    Setting,
    read_environment,
    read_flags,
    read_platform,
)
from infinity_v3.server.option import Option
from infinity_v3.server.option_types import Scalar

DEFAULT_ORIGIN = "default"
_KEY_VARIABLE = "INFINITY_API_KEY"


def load_configuration(
    flags: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> Configuration:
    """Read every source and merge them.

    Args:
        flags: option name -> values typed on the command line.
        environ: the process environment.

    Raises:
        UsageError: unknown key, malformed value or contradiction; names it and where it comes from.
    """
    options = all_options()
    command_line = read_flags(flags, options)
    environment, warnings = read_environment(environ, options)
    file_layers = _read_config_file(command_line, environment, options)
    layers = _Layers(
        low=[
            read_platform(environ, options),
            *([file_layers.top, file_layers.serve] if file_layers else ()),
        ],
        high=[environment, command_line],
        models=file_layers.models if file_layers else (),
    )
    if layers.models and layers.sets_high("model-id"):
        warnings.append(
            "the [[model]] tables are set aside: model-id comes from "
            f"{layers.high_origin('model-id')}"
        )
        layers = _Layers(low=layers.low, high=layers.high, models=())
    configuration = _merge(layers, options, tuple(warnings))
    _check_key(configuration, environ)
    check_configuration(configuration)
    return configuration


def _read_config_file(
    command_line: Layer, environment: Layer, options: Sequence[Option]
) -> FileLayers | None:
    setting = command_line.get("config") or environment.get("config")
    return read_file(Path(str(setting.values[0])), options) if setting else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layers:
    """`low` and `high` are ordered weakest first; the [[model]] tables stand between them."""

    low: list[Layer]
    high: list[Layer]
    models: tuple[Layer, ...]

    def sets_high(self, name: str) -> bool:
        return any(name in layer for layer in self.high)

    def high_origin(self, name: str) -> str:
        return next(layer[name].origin for layer in reversed(self.high) if name in layer)

    def strongest(self, name: str) -> Setting | None:
        for layer in reversed([*self.low, *self.high]):
            if name in layer:
                return layer[name]
        return None

    def all_values(self, name: str) -> tuple[tuple[Scalar, ...], str] | None:
        """Values of a repeatable option: the command line adds to the strongest lower source."""
        typed = self.high[-1].get(name)
        beneath = [layer[name] for layer in [*self.low, *self.high[:-1]] if name in layer]
        kept = [*beneath[-1:], *([typed] if typed else [])]
        if not kept:
            return None
        values = tuple(dict.fromkeys(value for setting in kept for value in setting.values))
        return values, " + ".join(setting.origin for setting in kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class _PerModel:
    values: list[Scalar]
    origins: tuple[str, ...]


def _merge(layers: _Layers, options: Sequence[Option], warnings: tuple[str, ...]) -> Configuration:
    origins: dict[str, tuple[str, ...]] = {}
    num_models = _count_models(layers)
    count = max(num_models, 1)
    per_model: dict[str, list[Scalar]] = {}
    of_process: dict[str, Any] = {}
    for option in options:
        if option.is_per_model:
            merged = _merge_per_model(layers, option, count)
            per_model[option.field], origins[option.name] = merged.values, merged.origins
        else:
            of_process[option.field], origins[option.name] = _merge_scalar(layers, option)
    models = tuple(_model(per_model, index) for index in range(count))
    return Configuration(
        serve=ServeConfig(models=models[:num_models], **of_process),
        reported_models=models,
        origins=origins,
        warnings=warnings,
    )


def _model(per_model: Mapping[str, list[Scalar]], index: int) -> ModelConfig:
    values: dict[str, Any] = {name: column[index] for name, column in per_model.items()}
    return ModelConfig(**{**values, "model_id": values["model_id"] or ""})


def _count_models(layers: _Layers) -> int:
    if layers.models:
        for layer in layers.low:
            if "model-id" in layer:
                raise UsageError(
                    f"model-id: given both in {layer['model-id'].origin} and in [[model]] tables; "
                    "keep one"
                )
        return len(layers.models)
    setting = layers.strongest("model-id")
    return len(setting.values) if setting else 0


def _merge_scalar(layers: _Layers, option: Option) -> tuple[object, tuple[str, ...]]:
    if option.is_repeatable:
        merged = layers.all_values(option.name)
        return (merged[0], (merged[1],)) if merged else (option.default, (DEFAULT_ORIGIN,))
    setting = layers.strongest(option.name)
    if setting is None:
        return option.default, (DEFAULT_ORIGIN,)
    return setting.values[0], (setting.origin,)


def _merge_per_model(layers: _Layers, option: Option, count: int) -> _PerModel:
    if not layers.models or layers.sets_high(option.name):
        setting = layers.strongest(option.name)
        return _broadcast(option, setting, count)
    fallback = layers.strongest(option.name)
    if fallback is not None and fallback.is_array:
        raise UsageError(
            f"{option.name}: an array in {fallback.origin} cannot be combined with [[model]] "
            "tables; put one value into each table"
        )
    base = _broadcast(option, fallback, count)
    values, origins = list(base.values), list(base.origins)
    for index, table in enumerate(layers.models):
        if option.name in table:
            values[index] = table[option.name].values[0]
            origins[index] = table[option.name].origin
    return _PerModel(values=values, origins=tuple(origins))


def _broadcast(option: Option, setting: Setting | None, count: int) -> _PerModel:
    if setting is None:
        value: Any = option.default
        return _PerModel(values=[value] * count, origins=(DEFAULT_ORIGIN,) * count)
    values = list(setting.values)
    if len(values) == 1:
        values = values * count
    if len(values) != count:
        raise UsageError(
            f"--{option.name} has {len(values)} values ({setting.origin}) for {count} "
            f"{'model' if count == 1 else 'models'}; give one value, or one per --model-id"
        )
    return _PerModel(values=values, origins=(setting.origin,) * count)


def _check_key(configuration: Configuration, environ: Mapping[str, str]) -> None:
    """An empty variable counts as unset, but must not leave a server open by accident."""
    if configuration.serve.api_key is None and environ.get(_KEY_VARIABLE) == "":
        raise UsageError(
            f"{_KEY_VARIABLE} is set but empty; give a key, or unset it to serve without one"
        )
