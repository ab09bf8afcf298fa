"""RoBERTa: BERT with positions that start after the padding id, and one token type."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

ROBERTA = ModelSpec(
    family="roberta",
    model_types=("roberta",),
    architectures=("Roberta",),
    positions_start_after_padding=True,
    default_pooling=PoolingMode.CLS,
    default_pad_token_id=1,
)
