"""CamemBERT: RoBERTa trained on French, with its own vocabulary."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

CAMEMBERT = ModelSpec(
    family="camembert",
    model_types=("camembert",),
    architectures=("Camembert",),
    positions_start_after_padding=True,
    default_pooling=PoolingMode.CLS,
    default_pad_token_id=1,
)
