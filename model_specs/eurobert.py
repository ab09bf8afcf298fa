"""EuroBERT: the layers of Llama, seeing both ways."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

EUROBERT = ModelSpec(
    family="eurobert",
    model_types=("eurobert",),
    architectures=("EuroBert",),
    default_pooling=PoolingMode.CLS,
    classifier_pooling=ClassifierPooling.CONFIGURED,
    is_built_in=True,
)
