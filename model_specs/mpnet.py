"""MPNet: positions after the padding id, and a bias per head and bucketed distance."""

from infinity_v3.model_specs.spec import ModelSpec

MPNET = ModelSpec(
    family="mpnet",
    model_types=("mpnet",),
    architectures=("MPNet",),
    positions_start_after_padding=True,
    default_pad_token_id=1,
)
