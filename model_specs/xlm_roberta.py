"""XLM-RoBERTa: RoBERTa with a multilingual Unigram vocabulary."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

XLM_ROBERTA = ModelSpec(
    family="xlm-roberta",
    model_types=("xlm-roberta",),
    architectures=("XLMRoberta",),
    positions_start_after_padding=True,
    default_pooling=PoolingMode.CLS,
    default_pad_token_id=1,
)
