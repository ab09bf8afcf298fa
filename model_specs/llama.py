"""Llama, and its bidirectional variants."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

LLAMA = ModelSpec(
    family="llama",
    model_types=("llama", "llama_bidirec"),
    architectures=("LlamaBidirectional", "Llama"),
    is_causal=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
    is_built_in=True,
)
