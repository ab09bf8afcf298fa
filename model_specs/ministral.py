"""Ministral: Mistral with windows in some layers."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

MINISTRAL = ModelSpec(
    family="ministral",
    model_types=("ministral",),
    architectures=("Ministral",),
    is_causal=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
)
