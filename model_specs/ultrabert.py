"""UltraBERT: a bidirectional encoder with rotary positions and a 32k context."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

ULTRABERT = ModelSpec(
    family="ultrabert",
    model_types=("ultrabert",),
    architectures=("Ultrabert", "UltraBert"),
    default_pooling=PoolingMode.CLS,
    classifier_pooling=ClassifierPooling.CONFIGURED,
    is_built_in=True,
)
