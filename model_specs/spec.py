"""What is special about a model family. Data only: no torch, no transformers, no I/O."""

from dataclasses import dataclass

from infinity_v3.artifacts.manifest import PoolingMode


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model family on the generic packed route.

    Attributes:
        family: our name, e.g. "bert".
        model_types: values of config.json `model_type` that resolve here.
        architectures: class names accepted in config.json `architectures`, by prefix, e.g. "Bert".
        has_token_types: the graph takes token type ids; False also where the table has a single
            row, all zeros.
        positions_start_after_padding: position ids start at pad_token_id + 1 (RoBERTa and its
            relatives).
        is_causal: attention sees only the past.
        default_pooling: used when the checkpoint says nothing; None = the user must say.
        default_pad_token_id: what transformers assumes when config.json has no `pad_token_id`.
        position_table: name of the bare encoder's position embedding, whose rows bound the position
            ids.
        has_pooler: the bare encoder class has a pooler that embeddings don't use
            (`add_pooling_layer=False` leaves it out).
    """

    family: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    has_token_types: bool = False
    positions_start_after_padding: bool = False
    is_causal: bool = False
    default_pooling: PoolingMode | None = None
    default_pad_token_id: int = 0
    position_table: str = "embeddings.position_embeddings.weight"
    has_pooler: bool = True
