"""Writes seeded tiny checkpoints, whole and broken, so that tests need no hub.

Owns the layout of a checkpoint directory as sentence-transformers reads it. Knows nothing of the
product.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
)

from tiny_tokenizers import TinyTokenizer, build_tokenizer, write_tokenizer

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert")

POOLING_FLAGS: Mapping[str, str] = {
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean-sqrt-len": "pooling_mode_mean_sqrt_len_tokens",
    "weighted-mean": "pooling_mode_weightedmean_tokens",
    "last-token": "pooling_mode_lasttoken",
}
"""Names of pooling modes on our side -> flags in `1_Pooling/config.json`."""

TANH = "torch.nn.modules.activation.Tanh"
IDENTITY = "torch.nn.modules.linear.Identity"

_HEADS: Mapping[str | None, type] = {
    None: AutoModel,
    "MaskedLM": AutoModelForMaskedLM,
    "SequenceClassification": AutoModelForSequenceClassification,
    "TokenClassification": AutoModelForTokenClassification,
}
_LEGACY_TYPES = {
    name: f"sentence_transformers.models.{name}"
    for name in ("Transformer", "Pooling", "Dense", "Normalize")
}
_NEW_TYPES = {
    "Transformer": "sentence_transformers.base.modules.transformer.Transformer",
    "Pooling": "sentence_transformers.sentence_transformer.modules.pooling.Pooling",
    "Dense": "sentence_transformers.base.modules.dense.Dense",
    "Normalize": "sentence_transformers.base.modules.normalize.Normalize",
}


@dataclass(frozen=True, kw_only=True)
class TinyDense:
    """One dense module; `activation` is the dotted class name that sentence-transformers stores."""

    out_features: int
    activation: str = TANH
    bias: bool = True


def make_tiny_checkpoint(  # noqa: PLR0913  one keyword per independent trait
    family: str,
    path: Path,
    *,
    seed: int = 0,
    pooling: Sequence[str] | None = ("mean",),
    dense: Sequence[TinyDense] = (),
    normalize: bool = True,
    prompts: Mapping[str, str] | None = None,
    default_prompt_name: str | None = None,
    similarity: str | None = None,
    max_seq_length: int | None = None,
    dtype: str = "float32",
    hidden_size: int = 32,
    num_layers: int = 2,
    num_heads: int = 4,
    max_positions: int | None = None,
    head: str | None = None,
    num_labels: int = 2,
    new_names: bool = False,
) -> Path:
    """Write one checkpoint that transformers and sentence-transformers both load.

    Args:
        family: one of `FAMILIES`.
        path: directory to write, created when absent.
        seed: decides every weight; same arguments, same bytes.
        pooling: names of `POOLING_FLAGS`; None writes a bare checkpoint without modules.json.
        dense: dense modules after the pooling, in order.
        normalize: append a Normalize module.
        prompts: named prompts for config_sentence_transformers.json.
        default_prompt_name: the one applied when a call names none.
        similarity: `similarity_fn_name`, e.g. "cosine".
        max_seq_length: written to sentence_bert_config.json when given.
        dtype: torch dtype name of the stored weights.
        hidden_size: width of the encoder, a multiple of `num_heads`.
        num_layers: encoder layers.
        num_heads: attention heads.
        max_positions: rows of the position table; default 512, or 514 where positions start after
            padding.
        head: None for the bare encoder, else "MaskedLM", "SequenceClassification" or
            "TokenClassification".
        num_labels: labels of a classification head.
        new_names: write module types and pooling config as sentence-transformers 6 does.

    Returns:
        path.
    """
    path.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer(family)
    sizes = _Sizes(hidden_size=hidden_size, num_layers=num_layers, num_heads=num_heads)
    config = _make_config(family, tokenizer, sizes, max_positions)
    config.num_labels = num_labels
    _write_model(config, head, getattr(torch, dtype), seed, path)
    write_tokenizer(tokenizer, path, model_max_length=_usable_positions(config))
    if max_seq_length is not None:
        limit = {"max_seq_length": max_seq_length, "do_lower_case": False}
        write_json(path / "sentence_bert_config.json", limit)
    if pooling is not None:
        layout = _Modules(path=path, types=_NEW_TYPES if new_names else _LEGACY_TYPES)
        layout.write(pooling, dense, normalize, width=hidden_size, seed=seed, new_names=new_names)
    if prompts is not None or default_prompt_name or similarity or pooling is not None:
        _write_sentence_transformers_config(path, prompts or {}, default_prompt_name, similarity)
    return path


def make_generative_checkpoint(path: Path, *, seed: int = 0) -> Path:
    """Write a tiny Llama causal language model: nothing in it says what task it is meant for."""
    from transformers import LlamaConfig, LlamaForCausalLM

    path.mkdir(parents=True, exist_ok=True)
    tokenizer = build_tokenizer("roberta")
    config = LlamaConfig(
        vocab_size=tokenizer.vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        LlamaForCausalLM(config).save_pretrained(path)
    write_tokenizer(tokenizer, path, model_max_length=128)
    return path


def truncate_safetensors(path: Path, *, keep_bytes: int | None = None) -> Path:
    """Cut model.safetensors short, by default to half of what its header promises."""
    file = path / "model.safetensors"
    os.truncate(file, file.stat().st_size // 2 if keep_bytes is None else keep_bytes)
    return path


def remove_tokenizer(path: Path) -> Path:
    """Delete tokenizer.json; tokenizer_config.json stays."""
    (path / "tokenizer.json").unlink()
    return path


def split_into_shards(path: Path, *, remove_shard: int | None = None) -> Path:
    """Replace model.safetensors by two shards and an index; `remove_shard` (1 or 2) is deleted."""
    from safetensors.torch import load_file

    tensors = load_file(path / "model.safetensors")
    (path / "model.safetensors").unlink()
    names = sorted(tensors)
    shards = {1: names[: len(names) // 2], 2: names[len(names) // 2 :]}
    for number, members in shards.items():
        save_file(
            {name: tensors[name] for name in members}, path / _shard_name(number), {"format": "pt"}
        )
    weight_map = {
        name: _shard_name(number) for number, members in shards.items() for name in members
    }
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    write_json(path / "model.safetensors.index.json", index)
    if remove_shard is not None:
        (path / _shard_name(remove_shard)).unlink()
    return path


def keep_only_pytorch_bin(path: Path) -> Path:
    """Replace model.safetensors by pytorch_model.bin, a pickle."""
    from safetensors.torch import load_file

    torch.save(load_file(path / "model.safetensors"), path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()
    return path


def set_json_key(file: Path, key: str, value: object) -> Path:
    """Set one top-level key of a JSON file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    document[key] = value
    write_json(file, document)
    return file


def remove_json_key(file: Path, key: str) -> Path:
    """Delete one top-level key of a JSON file."""
    document = json.loads(file.read_text(encoding="utf-8"))
    del document[key]
    write_json(file, document)
    return file


def duplicate_json_key(file: Path, key: str) -> Path:
    """Write `key` of a JSON object a second time, with the same value."""
    text = file.read_text(encoding="utf-8")
    value = json.dumps(json.loads(text)[key])
    file.write_text(text.replace("{", f"{{{json.dumps(key)}: {value},", 1), encoding="utf-8")
    return file


def write_json(file: Path, document: object) -> None:
    """Write a JSON file the way transformers does."""
    file.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class _Sizes:
    hidden_size: int
    num_layers: int
    num_heads: int


def _make_config(
    family: str, tokenizer: TinyTokenizer, sizes: _Sizes, max_positions: int | None
) -> PreTrainedConfig:
    names = {"hidden_size": sizes.hidden_size, "num_hidden_layers": sizes.num_layers}
    names |= {"num_attention_heads": sizes.num_heads, "intermediate_size": 2 * sizes.hidden_size}
    if family == "distilbert":
        names = {"dim": sizes.hidden_size, "n_layers": sizes.num_layers}
        names |= {"n_heads": sizes.num_heads, "hidden_dim": 2 * sizes.hidden_size}
    default_positions = 512 if family in ("bert", "distilbert") else 514
    config: PreTrainedConfig = AutoConfig.for_model(
        family,
        vocab_size=tokenizer.vocab_size,
        max_position_embeddings=max_positions or default_positions,
        **names,
        **tokenizer.config_ids,
        **({} if family == "distilbert" else {"type_vocab_size": 2 if family == "bert" else 1}),
    )
    return config


def _usable_positions(config: PreTrainedConfig) -> int:
    starts_after_padding = config.model_type in ("roberta", "xlm-roberta", "camembert")
    return int(config.max_position_embeddings) - (
        config.pad_token_id + 1 if starts_after_padding else 0
    )


def _write_model(
    config: PreTrainedConfig, head: str | None, dtype: torch.dtype, seed: int, path: Path
) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: PreTrainedModel = _HEADS[head].from_config(config)  # type: ignore[attr-defined]
        _spread_weights(model, seed)
    # The model's own `to` is wrapped in a way that hides its signature from type checkers.
    torch.nn.Module.to(model, dtype)
    model.save_pretrained(path)


def _spread_weights(model: PreTrainedModel, seed: int) -> None:
    # Fresh initialisation is so even that a lost bias, position or layer norm would hide within
    # rounding, and all texts would look alike.
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(_spread(name, noise))


def _spread(name: str, noise: torch.Tensor) -> torch.Tensor:
    if "norm" in name.lower() and name.endswith("weight"):
        return 1.0 + 0.2 * noise
    if "word_embeddings" in name:
        return 0.5 * noise
    return (0.1 if name.endswith("bias") else 0.2) * noise


@dataclass(frozen=True, kw_only=True)
class _Modules:
    path: Path
    types: Mapping[str, str]

    def write(
        self,
        pooling: Sequence[str],
        dense: Sequence[TinyDense],
        normalize: bool,
        *,
        width: int,
        seed: int,
        new_names: bool,
    ) -> None:
        kinds = ["Transformer", "Pooling", *("Dense" for _ in dense), *(["Normalize"] * normalize)]
        rows = [
            {
                "idx": index,
                "name": str(index),
                "path": _module_folder(index, kind),
                "type": self.types[kind],
            }
            for index, kind in enumerate(kinds)
        ]
        write_json(self.path / "modules.json", rows)
        write_config = _write_new_pooling if new_names else _write_legacy_pooling
        write_config(self.path / "1_Pooling", pooling, width)
        self._write_dense_chain(dense, width * len(pooling), seed)
        if normalize:
            (self.path / _module_folder(len(kinds) - 1, "Normalize")).mkdir(exist_ok=True)

    def _write_dense_chain(self, dense: Sequence[TinyDense], width: int, seed: int) -> None:
        for index, layer in enumerate(dense, start=2):
            _write_dense(self.path / _module_folder(index, "Dense"), layer, width, seed + index)
            width = layer.out_features


def _module_folder(index: int, kind: str) -> str:
    return "" if kind == "Transformer" else f"{index}_{kind}"


def _write_legacy_pooling(folder: Path, pooling: Sequence[str], width: int) -> None:
    folder.mkdir(exist_ok=True)
    flags = {flag: mode in pooling for mode, flag in POOLING_FLAGS.items()}
    write_json(
        folder / "config.json", {"word_embedding_dimension": width, **flags, "include_prompt": True}
    )


def _write_new_pooling(folder: Path, pooling: Sequence[str], width: int) -> None:
    folder.mkdir(exist_ok=True)
    new_names = {"mean-sqrt-len": "mean_sqrt_len_tokens", "weighted-mean": "weightedmean"}
    new_names |= {"last-token": "lasttoken"}
    modes = [new_names.get(mode, mode) for mode in pooling]
    mode = modes[0] if len(modes) == 1 else modes
    write_json(
        folder / "config.json",
        {"embedding_dimension": width, "pooling_mode": mode, "include_prompt": True},
    )


def _write_dense(folder: Path, layer: TinyDense, in_features: int, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    config = {"in_features": in_features, "out_features": layer.out_features, "bias": layer.bias}
    write_json(folder / "config.json", {**config, "activation_function": layer.activation})
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn((layer.out_features, in_features), generator=generator) * 0.2
    tensors = {"linear.weight": weight}
    if layer.bias:
        tensors["linear.bias"] = torch.randn((layer.out_features,), generator=generator) * 0.2
    save_file(tensors, folder / "model.safetensors")


def _write_sentence_transformers_config(
    path: Path, prompts: Mapping[str, str], default: str | None, similarity: str | None
) -> None:
    document = {
        "__version__": {"sentence_transformers": "5.2.0"},
        "model_type": "SentenceTransformer",
    }
    table = {
        "prompts": dict(prompts),
        "default_prompt_name": default,
        "similarity_fn_name": similarity,
    }
    write_json(path / "config_sentence_transformers.json", {**document, **table})


def _shard_name(number: int) -> str:
    return f"model-{number:05d}-of-00002.safetensors"
