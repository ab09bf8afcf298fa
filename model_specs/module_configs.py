"""Modules with a configuration of one or two keys: SpladePooling and LogitScore."""

from dataclasses import dataclass
from pathlib import Path

from infinity_v3.model_specs.json_file import JsonObject, read_object

_MAX_ID = 10**9
_ACTIVATIONS = ("relu", "log1p_relu")


@dataclass(frozen=True, slots=True, kw_only=True)
class SpladePooling:
    """Weight of a word = max over tokens of log(1 + activation(logit)).

    Attributes:
        file: the file that was read.
        is_log_doubled: the activation is itself log(1 + relu), instead of relu.
    """

    file: Path
    is_log_doubled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogitScore:
    """Score = the logit of one token, minus that of another one.

    Attributes:
        file: the file that was read.
        yes_id: whose logit is the score.
        no_id: whose logit is taken off; None = none.
    """

    file: Path
    yes_id: int
    no_id: int | None


def read_splade_pooling(file: Path) -> SpladePooling:
    """Read the configuration of a SpladePooling module.

    Raises:
        UsageError: it sums over tokens, or its activation is unknown.
        RunFailedError: the file can't be read.
    """
    config = read_object(file)
    if config.text("pooling_strategy") not in (None, "max"):
        config.refuse("pooling_strategy", '"max" (this release does not sum over tokens)')
    activation = config.text("activation_function") or _ACTIVATIONS[0]
    if activation not in _ACTIVATIONS:
        config.refuse("activation_function", f"one of {', '.join(_ACTIVATIONS)}")
    return SpladePooling(file=file, is_log_doubled=activation != _ACTIVATIONS[0])


def read_logit_score(file: Path) -> LogitScore:
    """Read the configuration of a LogitScore module.

    Raises:
        UsageError: an id is missing or none.
        RunFailedError: the file can't be read.
    """
    config = read_object(file)
    yes_id = _read_id(config, "true_token_id")
    if yes_id is None:
        config.refuse("true_token_id", "the id of a token")
    return LogitScore(file=file, yes_id=yes_id, no_id=_read_id(config, "false_token_id"))


def _read_id(config: JsonObject, key: str) -> int | None:
    return config.integer(key, minimum=0, maximum=_MAX_ID)
