"""Ministral 3: Mistral with scaled queries at long positions."""

from infinity_v3.artifacts.manifest import PoolingMode
from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

MINISTRAL3 = ModelSpec(
    family="ministral3",
    model_types=("ministral3",),
    architectures=("Ministral3Bidirectional", "Ministral3"),
    is_causal=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
    default_pooling=PoolingMode.LAST_TOKEN,
    is_built_in=True,
)
