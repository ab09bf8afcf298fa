"""DistilBERT: a BERT of half the layers, without token types and pooler."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

DISTILBERT = ModelSpec(
    family="distilbert",
    model_types=("distilbert",),
    architectures=("DistilBert",),
    default_pooling=PoolingMode.CLS,
)
