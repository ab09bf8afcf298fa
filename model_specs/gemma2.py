"""Gemma 2: soft-capped scores, and windows in every other layer."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

GEMMA2 = ModelSpec(
    family="gemma2",
    model_types=("gemma2",),
    architectures=("Gemma2",),
    is_causal=True,
    reads_direction=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
)
