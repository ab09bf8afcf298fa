"""The published configurations of NomicBERT, in the words of the classes that compute them.

Models with experts are ours, the dense ones transformers' own; left to itself, transformers would
take its defaults for sizes that a published file gives under other names. Knows nothing of the
modules.
"""

from collections.abc import Mapping
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import NomicBertConfig, PreTrainedConfig

from infinity_v3.artifacts.errors import UsageError

_NAMES: Mapping[str, str] = {
    "n_embd": "hidden_size",
    "n_layer": "num_hidden_layers",
    "n_head": "num_attention_heads",
    "n_inner": "intermediate_size",
    "layer_norm_epsilon": "layer_norm_eps",
}
_SHARED = ("vocab_size", "type_vocab_size", "pad_token_id", "bos_token_id", "eos_token_id")
_LABELS = ("architectures", "id2label", "label2id", "problem_type", "torch_dtype", "dtype")
_EXPERTS = ("num_experts", "moe_top_k", "moe_every_n_layers")
_TRAINED_POSITIONS = 2048
"""Beyond `max_trained_positions`, by default this, the published code rescales the rotation."""
_ALWAYS: Mapping[str, object] = {
    "prenorm": False,
    "causal": False,
    "parallel_block": False,
    "use_rms_norm": False,
    "rotary_emb_fraction": 1.0,
    "rotary_emb_interleaved": False,
    "rotary_emb_scale_base": None,
    "expert_choice_router": False,
    "moe_normalize_expert_weights": False,
    "num_shared_experts": 0,
}
"""Options that every published checkpoint leaves at one value."""


@strict
class NomicMoeConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """The published facts under the names that transformers uses."""

    model_type = "nomic_bert_moe"

    vocab_size: int = 250048
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: int = _TRAINED_POSITIONS
    type_vocab_size: int = 1
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    num_experts: int = 8
    moe_top_k: int = 2
    moe_every_n_layers: int = 2
    pad_token_id: int | None = 1
    bos_token_id: int | None = 0
    eos_token_id: int | None = 2


def adopt_nomic_bert(raw: Mapping[str, Any]) -> PreTrainedConfig | None:
    """The configuration that a published config.json describes; None if it is of another family.

    Raises:
        UsageError: it asks for a variant of the family that is not computed here.
    """
    if raw.get("model_type") != "nomic_bert" or "n_embd" not in raw:
        return None
    has_experts = bool(raw.get("moe_every_n_layers")) and bool(raw.get("num_experts"))
    _refuse_other_variants(raw, has_experts)
    facts = {ours: raw[theirs] for theirs, ours in _NAMES.items() if raw.get(theirs) is not None}
    facts |= {name: raw[name] for name in (*_SHARED, *_LABELS) if raw.get(name) is not None}
    facts["max_position_embeddings"] = min(
        int(raw["n_positions"]), int(raw.get("max_trained_positions") or _TRAINED_POSITIONS)
    )
    return _moe_config(raw, facts) if has_experts else _dense_config(raw, facts)


def _moe_config(raw: Mapping[str, Any], facts: dict[str, Any]) -> NomicMoeConfig:
    experts = {name: raw[name] for name in _EXPERTS if name in raw}
    return NomicMoeConfig(**facts, **experts, rope_theta=float(raw["rotary_emb_base"]))


def _dense_config(raw: Mapping[str, Any], facts: dict[str, Any]) -> NomicBertConfig:
    rotation = {"rope_type": "default", "rope_theta": float(raw["rotary_emb_base"])}
    return NomicBertConfig(**facts, hidden_act="silu", rope_parameters=rotation)


def _refuse_other_variants(raw: Mapping[str, Any], has_experts: bool) -> None:
    # The mixture has biases and no gate, the dense models have a gate and no biases.
    biases = dict.fromkeys(("qkv_proj_bias", "mlp_fc1_bias", "mlp_fc2_bias"), has_experts)
    wanted = {**_ALWAYS, **biases, "activation_function": "gelu" if has_experts else "swiglu"}
    for key, value in wanted.items():
        if key in raw and raw[key] != value:
            raise UsageError(
                f"config.json: {key}: expected {value!r} for a NomicBERT model "
                f"{'with' if has_experts else 'without'} experts, found {raw[key]!r}; "
                "use a checkpoint of the nomic-embed-text family"
            )
