"""The checkpoint's own model, as transformers implements it: the reference of every parity figure.

The only file that imports transformers. Knows nothing of engines, targets or artifacts.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedConfig
from transformers.activations import ACT2FN
from transformers.modeling_utils import AttentionInterface

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.artifacts.spelling import nearest
from infinity_v3.compiler.checkpoint_files import CONFIG
from infinity_v3.compiler.loaded_weights import LoadingReport, check_loaded
from infinity_v3.model_specs.json_file import shown

VERSION: str = transformers.__version__
SDPA_FROM_TOKENS = 2049
"""Longer probes run through sdpa, because eager attention materialises S x S per head."""


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
_ACTIVATION_KEYS = ("hidden_act", "activation")
_SHOWN_CHARACTERS = 300


def register_attention(name: str, function: Callable[..., tuple[Tensor, None]]) -> None:
    """Make `name` usable as `attn_implementation`.

    No mask function is registered with it: for an unknown name transformers builds no mask at all,
    which is what packed sequences need.
    """
    AttentionInterface.register(name, function)


def load_encoder(path: Path, *, dtype: torch.dtype, attention: str) -> nn.Module:
    """Load the encoder of a local checkpoint, weights complete or not at all.

    Raises:
        UsageError: transformers refuses config.json, or the weights are not those of the model that
            it describes, finite and floating-point (`CheckpointError`).
    """
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = _read_config(path)
    _refuse_unknown_activation(path, config)
    encoder, info = _build_model(path, config, dtype, attention)
    report = LoadingReport(
        missing=tuple(info["missing_keys"]),
        mismatched=tuple(entry[0] for entry in info["mismatched_keys"]),
        unexpected=tuple(info["unexpected_keys"]),
    )
    check_loaded(path, encoder, report)
    return encoder.eval().requires_grad_(False)


def _read_config(path: Path) -> PreTrainedConfig:
    try:
        config: PreTrainedConfig = AutoConfig.from_pretrained(path, local_files_only=True)
    except _REFUSALS as error:
        raise UsageError(
            f"{path / CONFIG}: transformers {VERSION} cannot read it: {_in_one_line(error)}; "
            "correct the file or fetch the checkpoint again"
        ) from error
    return config


def _build_model(
    path: Path, config: PreTrainedConfig, dtype: torch.dtype, attention: str
) -> tuple[nn.Module, dict[str, Any]]:
    options: dict[str, Any] = {"add_pooling_layer": False} if _has_pooler(config) else {}
    try:
        model, info = AutoModel.from_pretrained(
            path,
            config=config,
            dtype=dtype,
            attn_implementation=attention,
            local_files_only=True,
            use_safetensors=True,
            ignore_mismatched_sizes=True,  # reported by name and in one sentence
            output_loading_info=True,
            **options,
        )
    except _REFUSALS as error:
        raise UsageError(
            f"{path / CONFIG}: transformers {VERSION} cannot build the model that it describes: "
            f"{_in_one_line(error)}; correct the file or fetch the checkpoint again"
        ) from error
    return model, info


def _has_pooler(config: PreTrainedConfig) -> bool:
    model_class = AutoModel._model_mapping[type(config)]
    return "add_pooling_layer" in inspect.signature(model_class.__init__).parameters  # type: ignore[misc]


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


class Reference:
    """Runs one text at a time, padding-free by construction, in float32."""

    def __init__(self, path: Path) -> None:
        self._eager = load_encoder(path, dtype=torch.float32, attention="eager")
        self._path = path
        self._sdpa: nn.Module | None = None

    @property
    def num_layers(self) -> int:
        """Number of attention layers, read from the model's own configuration."""
        return int(self._eager.config.num_hidden_layers)  # type: ignore[union-attr, arg-type]

    def hidden(self, input_ids: Tensor) -> Tensor:
        """Last hidden state of one text: (S,) int64 -> (S, D) float32.

        Positions are the model's own.
        """
        model = self._eager if len(input_ids) < SDPA_FROM_TOKENS else self._long_model()
        with torch.inference_mode():
            output = model(
                input_ids=input_ids[None], attention_mask=torch.ones_like(input_ids)[None]
            )
        hidden: Tensor = output.last_hidden_state[0]
        return hidden

    def _long_model(self) -> nn.Module:
        if self._sdpa is None:
            self._sdpa = load_encoder(self._path, dtype=torch.float32, attention="sdpa")
        return self._sdpa
