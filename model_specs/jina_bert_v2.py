"""JinaBERT v2: BERT with linear biases by distance (ALiBi) and gated layers.

Published as model type "bert" with classes of its own, and code that is not needed here.
"""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ModelSpec

JINA_BERT_V2 = ModelSpec(
    family="jina_bert_v2",
    model_types=("jina_bert_v2",),
    architectures=("JinaBertV2", "JinaBert"),
    has_token_types=True,
    default_pooling=PoolingMode.CLS,
    has_sparse_head=False,
    is_built_in=True,
)
