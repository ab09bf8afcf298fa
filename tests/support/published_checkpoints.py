"""Writes seeded tiny checkpoints of families that transformers has no classes for.

Owns their published tensor names and config.json keys, spelled out apart from the product's
modules. Knows nothing of the product.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from tiny_json import write_json
from tiny_modules import LEGACY_TYPES, TinyModules
from tiny_tokenizers import TinyTokenizer, build_tokenizer, write_tokenizer

Shapes = dict[str, tuple[int, ...]]

JINA_REPOSITORY = "jinaai/jina-bert-implementation"
JINA_QUERY_KEY_NORM_REPOSITORY = "jinaai/jina-bert-v2-qk-post-norm"
NOMIC_REPOSITORY = "nomic-ai/nomic-bert-2048"


def make_jina_bert_checkpoint(  # noqa: PLR0913  one keyword per independent trait
    path: Path,
    *,
    seed: int = 0,
    hidden_size: int = 32,
    num_layers: int = 2,
    num_heads: int = 4,
    max_positions: int = 512,
    query_key_norm: bool = False,
    num_labels: int | None = None,
) -> Path:
    """Write a JinaBERT v2 as jina-embeddings-v2, with mean pooling, or jina-reranker-v1 is.

    Args:
        query_key_norm: the layout of jina-embeddings-v2-base-code, with its byte-level tokenizer.
        num_labels: add a sequence classifier; None for an embedding model.
    """
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer("roberta" if query_key_norm else "bert")
    inner = 2 * hidden_size
    config = {
        "model_type": "bert",
        "architectures": [_jina_architecture(num_labels)],
        "auto_map": _jina_auto_map(query_key_norm),
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "intermediate_size": inner,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": max_positions,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "position_embedding_type": "alibi",
        "feed_forward_type": "geglu",
        "emb_pooler": "mean",
        "torch_dtype": "float32",
        "use_cache": True,
        **tokenizer.config_ids,
    }
    if num_labels is not None:
        config["id2label"] = {str(number): f"LABEL_{number}" for number in range(num_labels)}
        config["label2id"] = {f"LABEL_{number}": number for number in range(num_labels)}
    layer = _jina_normed_layer if query_key_norm else _jina_layer
    shapes = _jina_embeddings(tokenizer.vocab_size, hidden_size)
    for number in range(num_layers):
        shapes |= _under(f"encoder.layer.{number}", layer(hidden_size, inner))
    shapes |= _linear("pooler.dense", hidden_size, hidden_size)
    if num_labels is not None:
        shapes = _under("bert", shapes) | _linear("classifier", num_labels, hidden_size)
    else:
        _write_modules(path, hidden_size)
    return _write(path, config, shapes, tokenizer, seed=seed, max_length=max_positions)


def make_nomic_moe_checkpoint(  # noqa: PLR0913  one keyword per independent trait
    path: Path,
    *,
    seed: int = 0,
    hidden_size: int = 32,
    num_layers: int = 4,
    num_heads: int = 4,
    num_experts: int = 8,
    top_k: int = 2,
    max_positions: int = 512,
    expert_bias: bool = True,
) -> Path:
    """Write a NomicBERT with experts in every second layer, as nomic-embed-text-v2-moe is.

    With mean pooling, as the dense one below.

    Args:
        expert_bias: False fills the bias that the experts of a layer share with zeros.
    """
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer("xlm-roberta")
    inner = 2 * hidden_size
    sizes = {"n_embd": hidden_size, "n_layer": num_layers, "n_head": num_heads, "n_inner": inner}
    experts = {"num_experts": num_experts, "moe_top_k": top_k, "moe_every_n_layers": 2}
    config = _nomic_config(tokenizer, max_positions) | sizes | experts
    config |= {"activation_function": "gelu", "layer_norm_epsilon": 1e-5, "rotary_emb_base": 10000}
    config |= dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), True)
    config |= {"expert_choice_router": False, "moe_normalize_expert_weights": False}
    config |= {"num_shared_experts": 0, "type_vocab_size": 1}
    shapes = _nomic_embeddings(tokenizer.vocab_size, hidden_size, types=1)
    for number in range(num_layers):
        name = f"encoder.layers.{number}"
        shapes |= _under(name, _nomic_attention(hidden_size, bias=True))
        has_experts = number % 2 == 1
        shapes |= (
            _nomic_experts(f"{name}.mlp", hidden_size, inner, num_experts)
            if has_experts
            else _linear(f"{name}.mlp.fc1", inner, hidden_size)
            | _linear(f"{name}.mlp.fc2", hidden_size, inner)
        )
    _write(path, config, shapes, tokenizer, seed=seed, max_length=max_positions)
    _write_modules(path, hidden_size)
    if not expert_bias:
        _fill_with_zeros(path / "model.safetensors", "experts.bias")
    return path


def make_nomic_bert_checkpoint(
    path: Path,
    *,
    seed: int = 0,
    hidden_size: int = 32,
    num_layers: int = 3,
    num_heads: int = 4,
    max_positions: int = 2048,
) -> Path:
    """Write a NomicBERT without experts, as nomic-embed-text-v1 is published."""
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer("bert")
    inner = 2 * hidden_size
    sizes = {"n_embd": hidden_size, "n_layer": num_layers, "n_head": num_heads, "n_inner": inner}
    config = _nomic_config(tokenizer, max_positions) | sizes
    config |= {"activation_function": "swiglu", "layer_norm_epsilon": 1e-12}
    config |= {"rotary_emb_base": 1000, "type_vocab_size": 2}
    config |= dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), False)
    shapes = _nomic_embeddings(tokenizer.vocab_size, hidden_size, types=2)
    for number in range(num_layers):
        name = f"encoder.layers.{number}"
        shapes |= _under(name, _nomic_attention(hidden_size, bias=False))
        shapes |= {f"{name}.mlp.fc11.weight": (inner, hidden_size)}
        shapes |= {f"{name}.mlp.fc12.weight": (inner, hidden_size)}
        shapes |= {f"{name}.mlp.fc2.weight": (hidden_size, inner)}
    _write_modules(path, hidden_size)
    return _write(path, config, shapes, tokenizer, seed=seed, max_length=max_positions)


def read_config(checkpoint: Path) -> dict[str, Any]:
    """config.json as it lies there."""
    config: dict[str, Any] = json.loads((checkpoint / "config.json").read_text(encoding="utf-8"))
    return config


def _jina_architecture(num_labels: int | None) -> str:
    return "JinaBertForMaskedLM" if num_labels is None else "JinaBertForSequenceClassification"


def _jina_auto_map(query_key_norm: bool) -> dict[str, str]:
    repository = JINA_QUERY_KEY_NORM_REPOSITORY if query_key_norm else JINA_REPOSITORY
    classes = {"AutoConfig": "configuration_bert.JinaBertConfig"}
    classes |= {"AutoModel": "modeling_bert.JinaBertModel"}
    return {name: f"{repository}--{value}" for name, value in classes.items()}


def _jina_embeddings(vocab_size: int, width: int) -> Shapes:
    return {
        "embeddings.word_embeddings.weight": (vocab_size, width),
        "embeddings.token_type_embeddings.weight": (2, width),
        **_norm("embeddings.LayerNorm", width),
    }


def _jina_attention(width: int) -> Shapes:
    shapes: Shapes = {}
    for name in ("self.query", "self.key", "self.value", "output.dense"):
        shapes |= _linear(f"attention.{name}", width, width)
    return shapes | _norm("attention.output.LayerNorm", width)


def _jina_layer(width: int, inner: int) -> Shapes:
    return {
        **_jina_attention(width),
        "mlp.gated_layers.weight": (2 * inner, width),
        **_linear("mlp.wo", width, inner),
        **_norm("mlp.layernorm", width),
    }


def _jina_normed_layer(width: int, inner: int) -> Shapes:
    norms = ("attention.self.layer_norm_q", "attention.self.layer_norm_k")
    shapes = _jina_attention(width)
    for name in (*norms, "layer_norm_1", "layer_norm_2"):
        shapes |= _norm(name, width)
    shapes |= {"mlp.up_gated_layer.weight": (2 * inner, width)}
    return shapes | _linear("mlp.down_layer", width, inner)


def _nomic_config(tokenizer: TinyTokenizer, max_positions: int) -> dict[str, object]:
    return {
        "model_type": "nomic_bert",
        "architectures": ["NomicBertModel"],
        "auto_map": {
            "AutoConfig": f"{NOMIC_REPOSITORY}--configuration_hf_nomic_bert.NomicBertConfig",
            "AutoModel": f"{NOMIC_REPOSITORY}--modeling_hf_nomic_bert.NomicBertModel",
        },
        "vocab_size": tokenizer.vocab_size,
        "n_positions": max_positions,
        "max_trained_positions": 2048,
        "causal": False,
        "prenorm": False,
        "parallel_block": False,
        "use_rms_norm": False,
        "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False,
        "rotary_emb_scale_base": None,
        "rotary_scaling_factor": None,
        "torch_dtype": "float32",
        **tokenizer.config_ids,
    }


def _nomic_embeddings(vocab_size: int, width: int, *, types: int) -> Shapes:
    return {
        "embeddings.word_embeddings.weight": (vocab_size, width),
        "embeddings.token_type_embeddings.weight": (types, width),
        **_norm("emb_ln", width),
    }


def _nomic_attention(width: int, *, bias: bool) -> Shapes:
    shapes = _linear("attn.Wqkv", 3 * width, width) | _linear("attn.out_proj", width, width)
    shapes = {name: s for name, s in shapes.items() if bias or not name.endswith("bias")}
    return shapes | _norm("norm1", width) | _norm("norm2", width)


def _nomic_experts(name: str, width: int, inner: int, num_experts: int) -> Shapes:
    return {
        f"{name}.router.layer.weight": (num_experts, width),
        f"{name}.experts.mlp.w1": (num_experts * inner, width),
        f"{name}.experts.mlp.w2": (num_experts * inner, width),
        f"{name}.experts.bias": (width,),
    }


def _linear(name: str, rows: int, columns: int) -> Shapes:
    return {f"{name}.weight": (rows, columns), f"{name}.bias": (rows,)}


def _norm(name: str, width: int) -> Shapes:
    return {f"{name}.weight": (width,), f"{name}.bias": (width,)}


def _under(prefix: str, shapes: Shapes) -> Shapes:
    return {f"{prefix}.{name}": shape for name, shape in shapes.items()}


def _write_modules(path: Path, width: int) -> None:
    modules = TinyModules(path=path, types=LEGACY_TYPES)
    modules.write(("mean",), (), True, width=width, seed=0, new_names=False)


def _write(
    path: Path,
    config: Mapping[str, object],
    shapes: Shapes,
    tokenizer: TinyTokenizer,
    *,
    seed: int,
    max_length: int,
) -> Path:
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: _spread(name, torch.randn(shape, generator=generator))
        for name, shape in sorted(shapes.items())
    }
    save_file(tensors, path / "model.safetensors", {"format": "pt"})
    write_json(path / "config.json", config)
    write_tokenizer(tokenizer, path, model_max_length=max_length)
    return path


def _fill_with_zeros(file: Path, ending: str) -> None:
    tensors = load_file(file)
    for name, tensor in tensors.items():
        if name.endswith(ending):
            tensor.zero_()
    save_file(tensors, file, {"format": "pt"})


def _spread(name: str, noise: torch.Tensor) -> torch.Tensor:
    """Wide enough that no lost part could hide within rounding."""
    is_norm = "norm" in name.lower() or "emb_ln" in name
    if is_norm and name.endswith("weight"):
        return 1.0 + 0.2 * noise
    if "word_embeddings" in name:
        return 0.5 * noise
    return (0.1 if name.endswith("bias") else 0.2) * noise
