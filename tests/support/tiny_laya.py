"""Tiny Laya checkpoints: seeded weights, a ModernBERT encoder, and the head in one file with it.

Knows nothing of what tests do with them.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from transformers import AutoModel, ModernBertConfig

from tiny_json import write_json
from tiny_tokenizers import build_tokenizer, write_tokenizer

_TYPES = 3
_OLD_ROPE = {"global_rope_theta": 160000.0, "local_rope_theta": 10000.0}
_NEW_ROPE = {
    "rope_parameters": {
        "full_attention": {"rope_theta": 160000.0, "rope_type": "default"},
        "sliding_attention": {"rope_theta": 160000.0, "rope_type": "default"},
    }
}


@dataclass(frozen=True, kw_only=True)
class LayaRecipe:
    """What one tiny checkpoint is like.

    Attributes:
        key: name of checkpoint and artifact; one key, one content.
        is_multilingual: both kinds of layers have one base of rotary positions, written the newer
            way, as in mmBERT.
        intermediate: width of the encoder's feed-forward layers; None = twice the model's.
        config: overrides rl_agent_config.json; None leaves a key out.
    """

    key: str
    seed: int = 0
    width: int = 64
    num_layers: int = 3
    num_heads: int = 2
    head_layers: int = 2
    max_len: int = 512
    head_max_len: int = 192
    intermediate: int | None = None
    is_multilingual: bool = False
    config: Mapping[str, object] = field(default_factory=dict)


BUCKETS = {"choice:2": 0.8, "choice:11+": 0.1006, "score:3-5": 2.5, "noul:2": 7.0}
"""One value below and one above what is applied."""
LAYA_RECIPES = (
    LayaRecipe(key="laya-512"),
    LayaRecipe(key="laya-bare", seed=1, head_layers=0, config={"temperature": [1.5, 0.7, 1.2]}),
    LayaRecipe(
        key="laya-multilingual",
        seed=2,
        is_multilingual=True,
        config={"temperature_by_options": BUCKETS},
    ),
    LayaRecipe(key="laya-2048", seed=3, max_len=2048, head_max_len=1400),
    LayaRecipe(
        key="laya-bare-2048",
        seed=4,
        width=128,
        head_layers=0,
        max_len=2048,
        is_multilingual=True,
        config={"temperature": [1.0, 2.0, 0.1], "act_costs": {"a": 1.0, "b": 2.0}},
    ),
)


def make_laya_checkpoint(path: Path, recipe: LayaRecipe) -> Path:
    """Write the checkpoint of a recipe."""
    for folder in ("encoder", "tokenizer"):
        (path / folder).mkdir(parents=True)
    tokenizer = build_tokenizer("modernbert")
    encoder = _encoder_config(recipe, tokenizer.vocab_size, tokenizer.config_ids)
    write_json(path / "encoder" / "config.json", encoder)
    write_tokenizer(tokenizer, path / "tokenizer", model_max_length=recipe.max_len)
    config = {
        "encoder": "tiny/encoder",
        "head_layers": recipe.head_layers,
        "max_len": recipe.max_len,
        "head_max_len": recipe.head_max_len,
        "temperature": [1.0, 1.0, 1.0],
        "temperature_by_options": {},
        "act_costs": {"ask": 0.1},
        "option_layout": "sequential",
        "amp_dtype": "bf16",
        **recipe.config,
    }
    write_json(path / "rl_agent_config.json", {k: v for k, v in config.items() if v is not None})
    save_file(_weights(recipe, path, config), path / "model.safetensors")
    return path


def _encoder_config(
    recipe: LayaRecipe, vocab_size: int, ids: Mapping[str, int]
) -> dict[str, object]:
    return {
        "architectures": ["ModernBertModel"],
        "model_type": "modernbert",
        "vocab_size": vocab_size,
        "hidden_size": recipe.width,
        "intermediate_size": recipe.intermediate or 2 * recipe.width,
        "num_hidden_layers": recipe.num_layers,
        "num_attention_heads": recipe.num_heads,
        "global_attn_every_n_layers": 3,
        "local_attention": 32,
        "max_position_embeddings": 8192,
        "norm_eps": 1e-5,
        "hidden_activation": "gelu",
        **ids,
        **(_NEW_ROPE if recipe.is_multilingual else _OLD_ROPE),
    }


def _weights(recipe: LayaRecipe, path: Path, config: Mapping[str, object]) -> dict[str, Tensor]:
    encoder = ModernBertConfig.from_pretrained(path / "encoder")
    with torch.device("meta"):
        shapes = {
            f"encoder.{name}": tuple(tensor.shape)
            for name, tensor in _bare(encoder).state_dict().items()
        }
    costs = config["act_costs"]
    assert isinstance(costs, dict)
    shapes |= _head_shapes(recipe.width, recipe.head_layers, len(costs) + 1)
    generator = torch.Generator().manual_seed(recipe.seed)
    return {name: _spread(name, shape, generator) for name, shape in sorted(shapes.items())} | {
        "temperature": torch.ones(_TYPES)
    }


def _bare(config: ModernBertConfig) -> nn.Module:
    model: nn.Module = AutoModel.from_config(config)  # type: ignore[no-untyped-call]
    return model


def _head_shapes(width: int, num_layers: int, num_actions: int) -> dict[str, tuple[int, ...]]:
    linear = {
        **{
            f"head.layers.{i}.{name}": shape
            for i in range(num_layers)
            for name, shape in {
                "self_attn.in_proj_": (3 * width, width),
                "self_attn.out_proj.": (width, width),
                "linear1.": (4 * width, width),
                "linear2.": (width, 4 * width),
                "norm1.": (width,),
                "norm2.": (width,),
            }.items()
        },
        "scorer.0.": (width,),
        "scorer.1.": (width, width),
        "scorer.3.": (1, width),
        "act_head.0.": (256, width + 4),
        "act_head.2.": (num_actions, 256),
    }
    shapes: dict[str, tuple[int, ...]] = {"type_emb.weight": (_TYPES, width)}
    for name, shape in linear.items():
        shapes |= {f"{name}weight": shape, f"{name}bias": shape[:1]}
    return shapes


def _spread(name: str, shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Far enough apart that every weight matters, and answers are neither certain nor even."""
    noise = torch.randn(shape, generator=generator)
    if len(shape) == 1:
        is_gain = name.endswith("weight")
        return 1.0 + 0.2 * noise if is_gain else 0.1 * noise
    if "embeddings" in name or name.startswith("type_emb"):
        return 0.5 * noise
    scale = 1.5 if name.startswith("scorer") else 1.0
    spread: Tensor = noise * (scale / float(shape[-1]) ** 0.5)
    return spread


if __name__ == "__main__":
    make_laya_checkpoint(Path(sys.argv[1]), LAYA_RECIPES[0])
