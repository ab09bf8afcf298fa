"""Published configurations of models that transformers has under another name.

Knows no weights: transformers itself maps the published tensor names.
"""

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PreTrainedConfig


def adopt_alias(raw: Mapping[str, Any]) -> PreTrainedConfig | None:
    """The configuration of a config.json whose model type transformers does not know.

    Args:
        raw: config.json as it lies there.
    """
    translate = {"new": _new_as_gte, "llama_bidirec": _bidirectional_llama}.get(raw["model_type"])
    if translate is None:
        return None
    values = translate(raw)
    return AutoConfig.for_model(values.pop("model_type"), **values)


def _bidirectional_llama(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {**_without_code(raw), "model_type": "llama", "is_causal": False}


def _new_as_gte(raw: Mapping[str, Any]) -> dict[str, Any]:
    """GTE-v1.5 scales by s as: base b * s, and every frequency divided by s^(2 / head width)."""
    base, scaling = float(raw.get("rope_theta", 10000.0)), raw.get("rope_scaling")
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": base}
    if isinstance(scaling, Mapping):
        factor = float(scaling["factor"])
        head_width = int(raw["hidden_size"]) // int(raw["num_attention_heads"])
        rope = {
            "rope_type": "linear",
            "rope_theta": base * factor,
            "factor": factor ** (2 / head_width),
        }
    kept = {k: v for k, v in _without_code(raw).items() if not k.startswith("rope_")}
    return {**kept, "model_type": "gte", "rope_parameters": rope}


def _without_code(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in raw.items() if key != "auto_map"}
