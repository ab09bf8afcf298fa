"""Seeded weights of the tiny models, spread so that every one of them matters.

Owns the sizes and spreads. Knows nothing of tokenizers or of files beside the model's.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from tiny_families import CAUSAL_LM, MASKED_LM, SEQUENCE, TOKEN, Published, TinyFamily
from tiny_json import write_json
from tiny_tokenizers import TinyTokenizer

_HEADS: Mapping[str | None, type] = {
    None: AutoModel,
    MASKED_LM: AutoModelForMaskedLM,
    SEQUENCE: AutoModelForSequenceClassification,
    TOKEN: AutoModelForTokenClassification,
    CAUSAL_LM: AutoModelForCausalLM,
}
_SCORERS = ("classifier.", "score.")
_EMBEDDINGS = ("word_embeddings", "embed_tokens", "tok_embeddings")
_SPREAD_WIDTH = 32


@dataclass(frozen=True, kw_only=True)
class TinySizes:
    """The sizes that a test may choose; None takes the family's own."""

    hidden_size: int = 32
    num_layers: int | None = None
    num_heads: int = 4
    max_positions: int | None = None


def make_config(
    family: TinyFamily, tokenizer: TinyTokenizer, sizes: TinySizes, more: Mapping[str, object]
) -> PreTrainedConfig:
    """The configuration of transformers' own model; `more` overrides the family's values."""
    width, layers = sizes.hidden_size, sizes.num_layers or family.num_layers
    names = {"hidden_size": width, "num_hidden_layers": layers}
    names |= {"num_attention_heads": sizes.num_heads, "intermediate_size": 2 * width}
    if family.model_type == "distilbert":
        names = {"dim": width, "n_layers": layers, "n_heads": sizes.num_heads}
        names |= {"hidden_dim": 2 * width}
    config: PreTrainedConfig = AutoConfig.for_model(
        family.model_type,
        vocab_size=tokenizer.vocab_size,
        max_position_embeddings=sizes.max_positions or family.max_positions,
        **names,
        **tokenizer.config_ids,
        **{**family.config, **more},
    )
    return config


def build_model(
    config: PreTrainedConfig, head: str | None, seed: int, *, norm_center: float = 1.0
) -> PreTrainedModel:
    """Transformers' model with seeded weights; `head` as in `tiny_families`, None for the bare."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = _HEADS[head].from_config(config)  # type: ignore[attr-defined]
        _spread_weights(model, seed, norm_center)
    return model


def _spread_weights(model: PreTrainedModel, seed: int, norm_center: float) -> None:
    # Fresh initialisation is so even that a lost bias, position or layer norm would hide within
    # rounding, and all texts would look alike.
    generator = torch.Generator().manual_seed(seed)
    width = getattr(model.config, "hidden_size", _SPREAD_WIDTH)
    # Wider layers add up more terms; scores and activations keep the size they have at 32.
    matrix = 0.2 * (_SPREAD_WIDTH / width) ** 0.5
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_spread(name, noise, matrix, norm_center))


def _spread(name: str, noise: torch.Tensor, matrix: float, norm_center: float) -> torch.Tensor:
    if "norm" in name.lower() and name.endswith("weight"):
        return norm_center + 0.2 * noise
    if any(embedding in name for embedding in _EMBEDDINGS):
        return 0.5 * noise
    if name.startswith(_SCORERS):
        # Probabilities near one half move most when logits do: small logits keep them comparable.
        return 0.5 * matrix * noise
    return (0.1 if name.endswith("bias") else matrix) * noise


def save_model(
    model: PreTrainedModel, path: Path, published: Published, *, dtype: torch.dtype, own_names: bool
) -> None:
    """Write config.json and model.safetensors as public checkpoints of the family look.

    Args:
        model: in float32.
        path: an existing folder.
        published: how they differ from what transformers writes.
        dtype: of the stored weights.
        own_names: keep the names of transformers' own parameters.
    """
    # The model's own `to` is wrapped in a way that hides its signature from type checkers.
    torch.nn.Module.to(model, dtype)
    model.save_pretrained(path, save_original_format=not own_names)
    _publish_tensors(path / "model.safetensors", published)
    _publish_config(path / "config.json", published)


def _publish_tensors(file: Path, published: Published) -> None:
    if not published.prefixes:
        return
    tensors = load_file(file)
    renamed = {_public_name(name, published): tensor for name, tensor in tensors.items()}
    save_file(renamed, file, {"format": "pt"})


def _public_name(name: str, published: Published) -> str:
    for own, public in published.prefixes:
        if name.startswith(own):
            return public + name.removeprefix(own)
    return name


def _publish_config(file: Path, published: Published) -> None:
    document = json.loads(file.read_text(encoding="utf-8"))
    if published.prefix is not None:
        (own,) = document["architectures"]
        suffix = own[own.index("For") :] if "For" in own else "Model"
        document["architectures"] = [published.prefix + suffix]
    if published.model_type is not None:
        document["model_type"] = published.model_type
    document = {key: value for key, value in document.items() if key not in published.drop}
    document |= published.config
    write_json(file, document)
