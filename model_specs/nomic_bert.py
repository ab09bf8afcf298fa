"""NomicBERT: BERT with rotary positions and gated layers."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

NOMIC_BERT = ModelSpec(
    family="nomic_bert",
    model_types=("nomic_bert",),
    architectures=("NomicBert",),
    has_token_types=True,
    default_pooling=PoolingMode.CLS,
    is_built_in=True,
)
