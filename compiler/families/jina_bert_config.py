"""The published configurations of JinaBERT v2, and which of its two layouts they mean.

Knows nothing of the modules.
"""

from collections.abc import Mapping
from typing import Any

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig

from infinity_v3.artifacts.errors import UsageError

FEED_FORWARD_TYPES = ("geglu", "reglu")
_QUERY_KEY_NORM = "qk-post-norm"
"""Part of the name of the repository that a configuration of the second layout points to."""


@strict
class JinaBertConfig(PreTrainedConfig):  # type: ignore[no-untyped-call]
    """The published keys, and which of the two layouts the weights have."""

    model_type = "jina_bert_v2"

    vocab_size: int = 30528
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    classifier_dropout: float | None = None
    max_position_embeddings: int = 8192
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    bos_token_id: int | None = None
    eos_token_id: int | None = None
    feed_forward_type: str = "geglu"
    query_key_norm: bool = False


def adopt_jina_bert(raw: Mapping[str, Any]) -> JinaBertConfig | None:
    """The configuration that a published config.json describes; None if it is of another family.

    Raises:
        UsageError: it asks for a variant of the family that this module does not compute.
    """
    if raw.get("model_type") != "bert" or not _is_jina_bert(raw):
        return None
    _require(raw, "position_embedding_type", ("alibi",))
    _require(raw, "feed_forward_type", FEED_FORWARD_TYPES)
    known = {name: value for name, value in raw.items() if name not in ("model_type", "auto_map")}
    return JinaBertConfig(**known, query_key_norm=_QUERY_KEY_NORM in _implementation(raw))


def _is_jina_bert(raw: Mapping[str, Any]) -> bool:
    names = " ".join(map(str, raw.get("architectures") or ()))
    is_alibi = raw.get("position_embedding_type") == "alibi"
    return is_alibi or "JinaBert" in f"{names} {_implementation(raw)}"


def _implementation(raw: Mapping[str, Any]) -> str:
    """Where the published configuration says that its code lies."""
    table = raw.get("auto_map")
    sources = table.values() if isinstance(table, Mapping) else ()
    return " ".join(map(str, (raw.get("_name_or_path"), *sources)))


def _require(raw: Mapping[str, Any], key: str, values: tuple[str, ...]) -> None:
    if raw.get(key) not in values:
        raise UsageError(
            f"config.json: {key}: expected {' or '.join(values)} for a JinaBERT model, found "
            f"{raw.get(key)!r}; use a checkpoint of the jina-embeddings-v2 family"
        )
