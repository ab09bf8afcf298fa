"""Writes seeded tiny checkpoints, whole and broken, so that tests need no hub.

Owns the layout of a checkpoint directory as sentence-transformers reads it; families and their
weights come from `tiny_families` and `tiny_weights`. Knows nothing of the product.
"""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from transformers import PreTrainedConfig

from tiny_families import TINY_FAMILIES
from tiny_json import duplicate_json_key as duplicate_json_key
from tiny_json import remove_json_key as remove_json_key
from tiny_json import set_json_key as set_json_key
from tiny_json import write_json as write_json
from tiny_modules import IDENTITY as IDENTITY
from tiny_modules import LEGACY_TYPES, NEW_TYPES, TinyModules
from tiny_modules import POOLING_FLAGS as POOLING_FLAGS
from tiny_modules import TANH as TANH
from tiny_modules import TinyDense as TinyDense
from tiny_tokenizers import build_tokenizer, write_tokenizer
from tiny_weights import TinySizes, build_model, make_config, save_model

FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "distilbert")
"""The BERT-like ones; `tiny_families.TINY_FAMILIES` has all."""

_TWO_THETAS = {
    "modernbert": ("global_rope_theta", "local_rope_theta"),
    "gemma3_text": ("rope_theta", "rope_local_base_freq"),
}

EMBEDDING_GEMMA_DENSE = (
    TinyDense(out_features=96, activation=IDENTITY, bias=False),
    TinyDense(out_features=32, activation=IDENTITY, bias=False),
)


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
    hidden_size: int | None = None,
    num_layers: int | None = None,
    num_heads: int = 4,
    max_positions: int | None = None,
    head: str | None = None,
    num_labels: int = 2,
    labels: Sequence[str] = (),
    problem_type: str | None = None,
    config: Mapping[str, object] | None = None,
    tokenizer: str | None = None,
    added_tokens: Sequence[str] = (),
    new_names: bool = False,
    own_tensor_names: bool = False,
) -> Path:
    """Write one checkpoint that transformers and sentence-transformers both load.

    Public checkpoints of the recipes "new" and "llama_bidirec" say a `model_type` that transformers
    does not know; `family_oracles` loads them as what they are.

    Args:
        family: a name of `tiny_families.TINY_FAMILIES`.
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
        hidden_size: width of the model, a multiple of `num_heads`; default the family's own.
        num_layers: layers; default the family's own.
        num_heads: attention heads.
        max_positions: rows of the position table; default 512, or 514 where positions start after
            padding.
        head: None for the bare model, else one of the family's `heads`.
        num_labels: labels of a classification head.
        labels: their names, instead of `num_labels`.
        problem_type: of a sequence classification, as transformers spells it.
        config: further values for config.json, over the family's own.
        tokenizer: a name of `tiny_tokenizers`; default the family's own.
        added_tokens: put behind the tokenizer's vocabulary, as text that is normalised.
        new_names: write module types and pooling config as sentence-transformers 6 does.
        own_tensor_names: name tensors as transformers does in memory, not as public checkpoints do.

    Returns:
        path.
    """
    path.mkdir(parents=True, exist_ok=True)
    recipe = TINY_FAMILIES[family]
    kind = recipe.embedding_tokenizer if head is None else None
    built = build_tokenizer(tokenizer or kind or recipe.tokenizer)
    built.backend.add_tokens(list(added_tokens))
    width = hidden_size or recipe.hidden_size
    sizes = TinySizes(
        hidden_size=width,
        num_layers=num_layers,
        num_heads=num_heads,
        max_positions=max_positions,
    )
    model_config = make_config(recipe, built, sizes, config or {})
    _set_labels(model_config, labels, num_labels, problem_type)
    model = build_model(model_config, head, seed, norm_center=recipe.norm_center)
    save_model(
        model,
        path,
        recipe.published,
        dtype=getattr(torch, dtype),
        own_names=own_tensor_names,
    )
    write_tokenizer(built, path, model_max_length=_usable_positions(model_config))
    if max_seq_length is not None:
        limit = {"max_seq_length": max_seq_length, "do_lower_case": False}
        write_json(path / "sentence_bert_config.json", limit)
    if pooling is not None:
        layout = TinyModules(path=path, types=NEW_TYPES if new_names else LEGACY_TYPES)
        layout.write(pooling, dense, normalize, width=width, seed=seed, new_names=new_names)
    if prompts is not None or default_prompt_name or similarity or pooling is not None:
        _write_sentence_transformers_config(path, prompts or {}, default_prompt_name, similarity)
    return path


def make_embedding_checkpoint(family: str, path: Path, *, seed: int = 0) -> Path:
    """Write an embedding checkpoint with what its family's public models have behind the encoder.

    Args:
        family: a name of `tiny_families.TINY_FAMILIES`.
        path: directory to write, created when absent.
        seed: decides every weight.
    """
    recipe = TINY_FAMILIES[family]
    dense = EMBEDDING_GEMMA_DENSE if family == "embeddinggemma" else ()
    return make_tiny_checkpoint(family, path, seed=seed, pooling=(recipe.pooling,), dense=dense)


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


def respell_config(path: Path) -> Path:
    """Rewrite config.json the way transformers 4 wrote it, as most public checkpoints have it.

    UltraBERT's other spelling is the recipe "ultrabert-windows".
    """
    file = path / "config.json"
    document = json.loads(file.read_text(encoding="utf-8"))
    document["torch_dtype"] = document.pop("dtype")
    if "num_local_experts" in document:
        document["num_experts"] = document.pop("num_local_experts")
    rope = document.pop("rope_parameters", None)
    document |= {} if rope is None else _rope_before(document["model_type"], rope)
    if document["model_type"] == "modernbert":
        del document["layer_types"]
    write_json(file, document)
    return path


def _rope_before(model_type: str, rope: Mapping[str, object]) -> dict[str, object]:
    if "full_attention" not in rope:
        rest = {key: value for key, value in rope.items() if key != "rope_theta"}
        scaling = None if rest == {"rope_type": "default"} else rest
        return {"rope_theta": rope["rope_theta"], "rope_scaling": scaling}
    wide, near = _TWO_THETAS[model_type]
    names = {wide: rope["full_attention"], near: rope["sliding_attention"]}
    return {
        name: values["rope_theta"] for name, values in names.items() if isinstance(values, Mapping)
    }


def _set_labels(
    config: PreTrainedConfig, labels: Sequence[str], count: int, problem_type: str | None
) -> None:
    config.num_labels = len(labels) or count
    if labels:
        config.id2label = dict(enumerate(labels))
        config.label2id = {label: index for index, label in enumerate(labels)}
    if problem_type is not None:
        config.update({"problem_type": problem_type})


def _usable_positions(config: PreTrainedConfig) -> int:
    starts_after_padding = config.model_type in ("roberta", "xlm-roberta", "camembert", "mpnet")
    return int(config.max_position_embeddings) - (
        config.pad_token_id + 1 if starts_after_padding else 0
    )


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
