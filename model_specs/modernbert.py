"""ModernBERT: rotary positions, and windows in two of three layers."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

MODERNBERT = ModelSpec(
    family="modernbert",
    model_types=("modernbert",),
    architectures=("ModernBert",),
    default_pooling=PoolingMode.CLS,
    classifier_pooling=ClassifierPooling.CONFIGURED,
    default_pad_token_id=50283,
)
