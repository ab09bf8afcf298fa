"""BERT: absolute positions from 0, two token types."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

BERT = ModelSpec(
    family="bert",
    model_types=("bert",),
    architectures=("Bert",),
    has_token_types=True,
    default_pooling=PoolingMode.CLS,
)
