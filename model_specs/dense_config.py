"""One dense module, from `*_Dense/config.json`. Reads no weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from infinity_v3.artifacts.errors import UsageError
from infinity_v3.model_specs.json_file import JsonObject, is_present, read_object

_MAX_FEATURES = 10**9
POOLED_VECTOR = "sentence_embedding"
TOKEN_VECTORS = "token_embeddings"
_VECTOR_WORDS = {POOLED_VECTOR: "the pooled vector", TOKEN_VECTORS: "the token vectors"}


class Activation(str, Enum):
    """Applied after the linear layer: the torch module of that name, with its defaults."""

    IDENTITY = "Identity"
    TANH = "Tanh"
    RELU = "ReLU"
    GELU = "GELU"
    SIGMOID = "Sigmoid"
    SILU = "SiLU"


_CLASSES: Mapping[str, Activation] = {
    f"{home}.{activation.value}": activation
    for activation in Activation
    for home in ("torch.nn", "torch.nn.modules.activation", "torch.nn.modules.linear")
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseLayer:
    """y = activation(W x + b).

    Attributes:
        folder: relative to the checkpoint, e.g. "2_Dense".
        weights: model.safetensors in that folder, with `linear.weight` (out, in) and, with a bias,
            `linear.bias`.
        in_features: width of x.
        out_features: width of y.
        has_bias: whether b is there.
        activation: applied last.
    """

    folder: str
    weights: Path
    in_features: int
    out_features: int
    has_bias: bool
    activation: Activation


def read_dense_layer(checkpoint: Path, folder: str, *, vector: str = POOLED_VECTOR) -> DenseLayer:
    """Read one dense module.

    Args:
        checkpoint: its directory.
        folder: of the module, relative to it.
        vector: what the module must work on: `POOLED_VECTOR` or `TOKEN_VECTORS`.

    Raises:
        UsageError: a key is wrong or missing, the module has a residual path or works on another
            vector, its activation is unknown, or its weights are not in safetensors
            format.
        RunFailedError: the file can't be read.
    """
    config = read_object(checkpoint / folder / "config.json")
    _refuse_other_wiring(config, vector)
    weights = checkpoint / folder / "model.safetensors"
    if not is_present(weights):
        raise UsageError(
            f"{weights}: expected the weights of the dense module, found none; "
            "save the checkpoint again with safe_serialization=True"
        )
    return DenseLayer(
        folder=folder,
        weights=weights,
        in_features=_read_features(config, "in_features"),
        out_features=_read_features(config, "out_features"),
        has_bias=config.flag("bias", default=True),
        activation=_read_activation(config),
    )


def _read_features(config: JsonObject, key: str) -> int:
    features = config.integer(key, minimum=1, maximum=_MAX_FEATURES)
    if features is None:
        config.refuse(key, "a whole number")
    return features


def _read_activation(config: JsonObject) -> Activation:
    if "activation_function" not in config.values:
        return Activation.TANH
    name = config.text("activation_function")
    if name is None or name not in _CLASSES:
        supported = ", ".join(f"torch.nn.{activation.value}" for activation in Activation)
        config.refuse("activation_function", f"one of {supported}")
    return _CLASSES[name]


def _refuse_other_wiring(config: JsonObject, vector: str) -> None:
    if config.flag("use_residual", default=False):
        config.refuse(
            "use_residual", "false (this release compiles dense modules without a residual path)"
        )
    for key in ("module_input_name", "module_output_name"):
        if config.text(key) not in (None, vector):
            config.refuse(
                key,
                f'"{vector}" (this release applies dense modules to {_VECTOR_WORDS[vector]})',
            )
