"""Qwen3-MoE: Qwen3 with routed experts."""

from infinity_v3.model_specs.spec import ClassifierPooling, ModelSpec

QWEN3_MOE = ModelSpec(
    family="qwen3_moe",
    model_types=("qwen3_moe",),
    architectures=("Qwen3Moe",),
    is_causal=True,
    is_generative=True,
    classifier_pooling=ClassifierPooling.LAST_TOKEN,
)
