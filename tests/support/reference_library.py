"""The reference library as tests see it: what transformers itself makes of a checkpoint."""

from pathlib import Path

from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)


def load_reference_model(path: Path) -> PreTrainedModel:
    """The bare encoder of a checkpoint, in the type its weights are stored in, without dropout."""
    model: PreTrainedModel = AutoModel.from_pretrained(path)
    return model


def load_reference_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a checkpoint."""
    tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(path)
    return tokenizer


def default_config(family: str) -> PreTrainedConfig:
    """What is assumed of a family when config.json is silent."""
    return AutoConfig.for_model(family)
