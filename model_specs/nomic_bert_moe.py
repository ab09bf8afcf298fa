"""NomicBERT with experts: every other layer routes each token to some of its experts.

Published as model type "nomic_bert" with `num_experts`, and code that is not needed here.
"""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

NOMIC_BERT_MOE = ModelSpec(
    family="nomic_bert_moe",
    model_types=("nomic_bert_moe",),
    architectures=("NomicBertMoe", "NomicBert"),
    has_token_types=True,
    default_pooling=PoolingMode.CLS,
    default_pad_token_id=1,
    has_sparse_head=False,
    is_built_in=True,
)
