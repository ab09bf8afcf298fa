"""How the checkpoint pools token vectors: `*_Pooling/config.json`, in its old and its new form."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.json_file import JsonObject, read_object

_FLAGS: Mapping[str, PoolingMode] = {
    "pooling_mode_cls_token": PoolingMode.CLS,
    "pooling_mode_max_tokens": PoolingMode.MAX,
    "pooling_mode_mean_tokens": PoolingMode.MEAN,
    "pooling_mode_mean_sqrt_len_tokens": PoolingMode.MEAN_SQRT_LEN,
    "pooling_mode_weightedmean_tokens": PoolingMode.WEIGHTED_MEAN,
    "pooling_mode_lasttoken": PoolingMode.LAST_TOKEN,
}
"""Old form: one flag per mode. The order of this table is the order of concatenation."""

_NAMES: Mapping[str, PoolingMode] = {
    "cls": PoolingMode.CLS,
    "max": PoolingMode.MAX,
    "mean": PoolingMode.MEAN,
    "mean_sqrt_len_tokens": PoolingMode.MEAN_SQRT_LEN,
    "weightedmean": PoolingMode.WEIGHTED_MEAN,
    "lasttoken": PoolingMode.LAST_TOKEN,
}
"""New form: `pooling_mode` is a name or a list of names, concatenated as listed."""

_MAX_WIDTH = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolingConfig:
    """The stored pooling.

    Attributes:
        file: the file that was read.
        modes: concatenated in this order.
        width: of one token vector; None = not stated.
    """

    file: Path
    modes: tuple[PoolingMode, ...]
    width: int | None


def read_pooling_config(file: Path) -> PoolingConfig:
    """Read one pooling configuration.

    Raises:
        UsageError: the file is absent, a key is wrong, or prompts are kept out of the pooling.
        RunFailedError: the file can't be read.
    """
    config = read_object(file)
    if not config.flag("include_prompt", default=True):
        raise UsageError(
            f"{config.where('include_prompt')}: expected true, found false; "
            "this release pools over the prompt as well and can't leave it out"
        )
    modes = _read_names(config) if config.has("pooling_mode") else _read_flags(config)
    return PoolingConfig(file=file, modes=modes, width=_read_width(config))


def _read_width(config: JsonObject) -> int | None:
    new = config.integer("embedding_dimension", minimum=1, maximum=_MAX_WIDTH)
    return new or config.integer("word_embedding_dimension", minimum=1, maximum=_MAX_WIDTH)


def _read_flags(config: JsonObject) -> tuple[PoolingMode, ...]:
    modes = tuple(mode for flag, mode in _FLAGS.items() if config.flag(flag, default=False))
    # sentence-transformers reads "no flag is true" as mean.
    return modes or (PoolingMode.MEAN,)


def _read_names(config: JsonObject) -> tuple[PoolingMode, ...]:
    stated = config.values["pooling_mode"]
    names = (stated,) if isinstance(stated, str) else config.texts("pooling_mode")
    modes = tuple(_NAMES[name] for name in names if name in _NAMES)
    if not modes or len(modes) != len(names) or len(set(modes)) != len(modes):
        config.refuse("pooling_mode", f"different names out of {', '.join(_NAMES)}")
    return modes
