"""GTE, also called New: rotary positions, gated layers, no token types."""

from infinity_v3.model_specs.spec import ModelSpec

GTE = ModelSpec(
    family="gte",
    model_types=("gte", "new"),
    architectures=("Gte", "New"),
    is_built_in=True,
)
