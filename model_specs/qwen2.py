"""Qwen2: a decoder with biased query, key and value projections."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

QWEN2 = ModelSpec(
    family="qwen2",
    model_types=("qwen2",),
    architectures=("Qwen2",),
    is_causal=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
    is_built_in=True,
)
