"""Gemma 3 text and EmbeddingGemma: windows in five of six layers."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

GEMMA3 = ModelSpec(
    family="gemma3",
    model_types=("gemma3_text",),
    architectures=("Gemma3Text", "Gemma3"),
    is_causal=True,
    reads_direction=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
)
