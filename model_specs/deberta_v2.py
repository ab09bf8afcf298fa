"""DeBERTa-v2 and v3: attention that keeps content and distance apart."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

DEBERTA_V2 = ModelSpec(
    family="deberta_v2",
    model_types=("deberta-v2",),
    architectures=("DebertaV2",),
    has_token_types=True,
    default_pooling=PoolingMode.CLS,
    has_sparse_head=False,
)
