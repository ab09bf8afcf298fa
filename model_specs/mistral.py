"""Mistral: a decoder, in early releases with a sliding window."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

MISTRAL = ModelSpec(
    family="mistral",
    model_types=("mistral",),
    architectures=("Mistral",),
    is_causal=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
    is_built_in=True,
)
