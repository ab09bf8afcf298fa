"""Jina embeddings v3: XLM-R with rotary positions."""

from infinity_v3.model_specs.spec import ModelSpec

JINA_V3 = ModelSpec(
    family="jina_v3",
    model_types=("jina_embeddings_v3",),
    architectures=("JinaEmbeddingsV3",),
    default_pad_token_id=1,
)
