"""A checkpoint's config.json as transformers reads it, and what is said when it cannot use it.

Knows nothing of weights, heads or tasks.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import transformers
from huggingface_hub.errors import StrictDataclassError
from transformers import AutoConfig, PreTrainedConfig
from transformers.activations import ACT2FN

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.checkpoint_files import CONFIG
from infinity_v3.compiler.families import adopt
from infinity_v3.compiler.families.aliases import adopt_alias
from infinity_v3.model_specs.json_file import shown

VERSION: str = transformers.__version__

# What transformers and torch raise on values that they have no use for. I/O errors and a lack of
# memory say something else.
_REFUSALS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    StrictDataclassError,
    TypeError,
    ValueError,
)
_ACTIVATION_KEYS = (
    "hidden_act",
    "hidden_activation",
    "activation",
    "pooler_hidden_act",
    "classifier_activation",
)
_SHOWN_CHARACTERS = 300


def read_config(path: Path) -> PreTrainedConfig:
    """Read the config.json of a checkpoint, in the words of transformers' own families.

    Args:
        path: the checkpoint; our own families are registered.

    Raises:
        UsageError: transformers cannot read it, or it names an activation that there is not.
    """
    with explaining(path, "read it"):
        raw = json.loads((path / CONFIG).read_text(encoding="utf-8"))
        config: PreTrainedConfig = (
            adopt(raw)
            or adopt_alias(raw)
            or AutoConfig.from_pretrained(path, local_files_only=True)
        )
    _refuse_unknown_activation(path, config)
    return config


@contextmanager
def explaining(path: Path, work: str) -> Iterator[None]:
    """Put into one sentence why transformers cannot do something with a checkpoint's config.json.

    Args:
        path: the checkpoint.
        work: what is done inside the block: "read it".

    Raises:
        UsageError: it cannot.
    """
    try:
        yield
    except _REFUSALS as error:
        raise UsageError(
            f"{path / CONFIG}: transformers {VERSION} cannot {work}: {_in_one_line(error)}; "
            "correct the file or fetch the checkpoint again"
        ) from error


def _refuse_unknown_activation(path: Path, config: PreTrainedConfig) -> None:
    """Name the key, which transformers' own error does not."""
    for key in _ACTIVATION_KEYS:
        name = getattr(config, key, None)
        if isinstance(name, str) and name not in ACT2FN:
            raise UsageError(
                f"{path / CONFIG}: {key}: expected an activation of transformers {VERSION} such as "
                f"gelu, found {shown(name)}{nearest(name[:100], ACT2FN)}; "
                "correct the file or fetch the checkpoint again"
            )


def _in_one_line(error: Exception) -> str:
    first, *others = [line.strip() for line in str(error).splitlines()] or [""]
    if first.endswith(":") and others:
        first = f"{first} {others[0]}"
    return f"{type(error).__name__}: {first[:_SHOWN_CHARACTERS]}".removesuffix(".")
