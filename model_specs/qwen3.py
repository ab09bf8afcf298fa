"""Qwen3: a decoder with normalised queries and keys."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

QWEN3 = ModelSpec(
    family="qwen3",
    model_types=("qwen3",),
    architectures=("Qwen3",),
    is_causal=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
)
