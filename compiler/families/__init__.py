"""Families that transformers does not load or does not run packed, as it is called from outside.

`register_families` once, then `adopt` on each config.json, then `pack` on each model that is to
take packed texts.
"""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
)

from infinity_v3.compiler.families.experts import EXPERTS_NAME, register_experts
from infinity_v3.compiler.families.jina_bert import (
    JinaBertForSequenceClassification,
    JinaBertModel,
)
from infinity_v3.compiler.families.jina_bert_config import JinaBertConfig, adopt_jina_bert
from infinity_v3.compiler.families.nomic_bert_config import NomicMoeConfig, adopt_nomic_bert
from infinity_v3.compiler.families.nomic_moe import NomicMoeModel

__all__ = ["EXPERTS_NAME", "adopt", "pack", "register_families"]


def register_families() -> None:
    """Make the families of this folder known to transformers' Auto classes; may be repeated."""
    for config in (JinaBertConfig, NomicMoeConfig):
        AutoConfig.register(config.model_type, config, exist_ok=True)
    AutoModel.register(JinaBertConfig, JinaBertModel, exist_ok=True)
    AutoModel.register(NomicMoeConfig, NomicMoeModel, exist_ok=True)
    AutoModelForSequenceClassification.register(
        JinaBertConfig, JinaBertForSequenceClassification, exist_ok=True
    )
    register_experts()


def adopt(raw: Mapping[str, Any]) -> PreTrainedConfig | None:
    """The configuration of a published config.json that transformers would misread.

    Args:
        raw: config.json as it lies there.

    Returns:
        The configuration to load the checkpoint with, or None to leave it to transformers.

    Raises:
        UsageError: a variant of one of the families that is not computed here.
    """
    return adopt_jina_bert(raw) or adopt_nomic_bert(raw)


def pack(model: nn.Module) -> None:
    """Turn what needs it in a loaded model into its packed form, in place.

    Models with exchangeable attention are left as they are.

    Args:
        model: an encoder, or a model with a head around one.
    """
    for module in list(model.modules()):
        pack_module = _packer_of(type(module).__name__)
        if pack_module is not None:
            pack_module(module)


def _packer_of(class_name: str) -> Callable[[Any], None] | None:
    # transformers loads the classes of a family only when somebody names them.
    if class_name == "MPNetModel":
        from infinity_v3.compiler.families.mpnet import pack_mpnet

        return pack_mpnet
    if class_name == "DebertaV2Model":
        from infinity_v3.compiler.families.deberta import pack_deberta

        return pack_deberta
    return None
