"""What rl_agent_config.json says of a Laya checkpoint. Reads no weights and no tokenizer."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.decision import (
    LAYA_BUCKETS,
    LAYA_MIN_HEAD,
    MAX_TEMPERATURE,
    MIN_TEMPERATURE,
    QuestionType,
    Temperatures,
)
from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, read_object, shown

LAYA_CONFIG = "rl_agent_config.json"
ENCODER_FOLDER = "encoder"
TOKENIZER_FOLDER = "tokenizer"
_SEQUENTIAL = "sequential"
_DEFAULT_LAYERS = 2
_MAX_LAYERS = 8
_DEFAULT_MAX_LEN, _DEFAULT_HEAD_LEN = 512, 192
_MAX_LEN = 8192
_NEUTRAL = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LayaConfig:
    """One rl_agent_config.json.

    Attributes:
        head_layers: transformer layers behind the encoder.
        max_len, head_max_len: tokens of a sequence and of its question half.
        num_actions: outputs of the act head, which is in the weights and not compiled.
        base_model: the encoder that it was trained from, as the file names it.
        warnings: sentences for the user.
    """

    file: Path
    head_layers: int
    max_len: int
    head_max_len: int
    temperature: Temperatures
    num_actions: int
    base_model: str | None
    warnings: tuple[str, ...]


def read_laya_config(file: Path) -> LayaConfig:
    """Read the file.

    Raises:
        UsageError: a key has a wrong type or value, or asks for what is not compiled.
        RunFailedError: the file can't be read.
    """
    config = read_object(file)
    _refuse_parallel(config)
    max_len = _size(config, "max_len", _DEFAULT_MAX_LEN, LAYA_MIN_HEAD + 1, _MAX_LEN)
    costs = config.child("act_costs")
    temperature, warnings = _read_temperatures(config)
    return LayaConfig(
        file=file,
        head_layers=_size(config, "head_layers", _DEFAULT_LAYERS, 0, _MAX_LAYERS),
        max_len=max_len,
        head_max_len=_size(config, "head_max_len", _DEFAULT_HEAD_LEN, LAYA_MIN_HEAD, max_len - 1),
        temperature=temperature,
        num_actions=len(costs.values if costs else {}) + 1,
        base_model=config.text("encoder"),
        warnings=(*warnings, *_language_warnings(config)),
    )


def _size(config: JsonObject, key: str, default: int, minimum: int, maximum: int) -> int:
    found = config.integer(key, minimum=minimum, maximum=maximum)
    if found is None and not minimum <= default <= maximum:
        config.refuse(key, f"a whole number from {minimum} to {maximum}")
    return default if found is None else found


def _refuse_parallel(config: JsonObject) -> None:
    layout = config.text("option_layout") or _SEQUENTIAL
    if layout != _SEQUENTIAL:
        raise UsageError(
            f"{config.where('option_layout')}: expected {_SEQUENTIAL}, found {shown(layout)}; this "
            "release does not compile another layout of options"
        )


def _read_temperatures(config: JsonObject) -> tuple[Temperatures, tuple[str, ...]]:
    by_type = config.values.get("temperature", [_NEUTRAL] * len(QuestionType))
    if not isinstance(by_type, list) or len(by_type) != len(QuestionType):
        config.refuse("temperature", f"a list of {len(QuestionType)} numbers")
    buckets = config.child("temperature_by_options")
    stated: Mapping[str, object] = buckets.values if buckets else {}
    known = [f"{kind.value}:{bucket}" for kind in QuestionType for bucket in LAYA_BUCKETS]
    used = {key: stated[key] for key in known if key in stated}
    named = {f"temperature[{i}]": value for i, value in enumerate(by_type)} | used
    temperatures = Temperatures(
        by_type=tuple(map(_clamped, by_type)),
        by_bucket={key: _clamped(value) for key, value in used.items()},
        raw_by_type=tuple(map(_number, by_type)),
        raw_by_bucket={key: _number(value) for key, value in used.items()},
    )
    replaced = [name for name, value in named.items() if _number(value) != _clamped(value)]
    unknown = [key for key in stated if key not in used]
    return temperatures, (
        *_replaced_warnings(config, replaced),
        *_unknown_warnings(config, unknown, known),
    )


def _unknown_warnings(config: JsonObject, unknown: list[str], known: list[str]) -> list[str]:
    if not unknown:
        return []
    return [
        f"{config.file.name}: temperature_by_options: expected keys among {', '.join(known)}; "
        f"found {len(unknown)} that no question uses, the first is {shown(unknown[0])}"
    ]


def _replaced_warnings(config: JsonObject, names: list[str]) -> list[str]:
    if not names:
        return []
    return [
        f"{config.file.name}: {', '.join(names)}: not between {MIN_TEMPERATURE} and "
        f"{MAX_TEMPERATURE}, so the nearest bound counts, or {_NEUTRAL} for what is no number: "
        "the probabilities of these questions are not calibrated"
    ]


def _language_warnings(config: JsonObject) -> list[str]:
    if not config.has("lang_temperatures"):
        return []
    return [f"{config.file.name}: lang_temperatures is ignored: requests name no language"]


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _clamped(value: object) -> float:
    number = _number(value)
    return _NEUTRAL if number is None else min(MAX_TEMPERATURE, max(MIN_TEMPERATURE, number))
