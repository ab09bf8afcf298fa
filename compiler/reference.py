"""The checkpoint's own model, as transformers implements it: the reference of every parity figure.

The only file that imports transformers. Knows nothing of engines, targets or artifacts.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers.modeling_utils import AttentionInterface

from infinity_v3.artifacts.errors import UsageError

VERSION: str = transformers.__version__
SDPA_FROM_TOKENS = 2049
"""Longer probes run through sdpa, because eager attention materialises S x S per head."""


def register_attention(name: str, function: Callable[..., tuple[Tensor, None]]) -> None:
    """Make `name` usable as `attn_implementation`.

    No mask function is registered with it: for an unknown name transformers builds no mask at all,
    which is what packed sequences need.
    """
    AttentionInterface.register(name, function)


def load_encoder(path: Path, *, dtype: torch.dtype, attention: str) -> nn.Module:
    """Load the encoder of a local checkpoint, weights complete or not at all.

    Raises:
        UsageError: weights that the architecture needs are absent or have another shape.
    """
    transformers.utils.logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    transformers.utils.logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    config = AutoConfig.from_pretrained(path, local_files_only=True)
    options: dict[str, Any] = {"add_pooling_layer": False} if _has_pooler(config) else {}
    model, info = AutoModel.from_pretrained(
        path,
        config=config,
        dtype=dtype,
        attn_implementation=attention,
        local_files_only=True,
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # reported below, by name and in one sentence
        output_loading_info=True,
        **options,
    )
    _refuse_incomplete(path, info)
    encoder: nn.Module = model.eval().requires_grad_(False)
    return encoder


def _has_pooler(config: Any) -> bool:  # noqa: ANN401 - transformers leaves it untyped
    model_class = AutoModel._model_mapping[type(config)]
    return "add_pooling_layer" in inspect.signature(model_class.__init__).parameters  # type: ignore[misc]


def _refuse_incomplete(path: Path, info: dict[str, Any]) -> None:
    mismatched = sorted(str(entry[0]) for entry in info["mismatched_keys"])
    if mismatched:
        raise UsageError(
            f"{path}: {len(mismatched)} weights have another shape than config.json asks for, the "
            f"first is {mismatched[0]}; config.json and the weights must come from one checkpoint"
        )
    missing = sorted(str(name) for name in info["missing_keys"])
    if missing:
        raise UsageError(
            f"{path}: {len(missing)} weights that the architecture needs are absent, the first is "
            f"{missing[0]}; use a complete checkpoint of this architecture"
        )


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
