"""What the table of tiny families says of each: its record, and the names of heads.

Knows nothing of any one family, of files, or of weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

Values = Mapping[str, object]

MASKED_LM = "MaskedLM"
SEQUENCE = "SequenceClassification"
TOKEN = "TokenClassification"
CAUSAL_LM = "CausalLM"
WIDE = 128
ENCODER_HEADS = (MASKED_LM, SEQUENCE, TOKEN)
DECODER_HEADS = (CAUSAL_LM, SEQUENCE, TOKEN)
BIO_LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")


@dataclass(frozen=True, kw_only=True)
class Feature:
    """A trait, and how transformers' own model is made to lose it: by exactly one of three ways.

    Attributes:
        name: of the trait.
        config: values that switch it off.
        zero: part of the names of the parameters that hold it.
        inputs: "positions-from-zero" or "no-token-types".
    """

    name: str
    config: Values = field(default_factory=dict)
    zero: str = ""
    inputs: str = ""


@dataclass(frozen=True, kw_only=True)
class Published:
    """How public checkpoints differ from what transformers writes for the same model.

    Attributes:
        model_type: in config.json; None keeps transformers' own.
        prefix: of class names in `architectures`, e.g. "New" for "NewModel"; None keeps.
        config: values set in config.json.
        drop: keys removed from config.json.
        prefixes: tensor-name prefixes, transformers' own -> public.
    """

    model_type: str | None = None
    prefix: str | None = None
    config: Values = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    prefixes: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class TinyFamily:
    """One family.

    Attributes:
        name: of the recipe.
        model_type: transformers' own.
        tokenizer: a name of `tiny_tokenizers`.
        embedding_tokenizer: the one of bare checkpoints, when it differs.
        config: values beside the sizes.
        heads: that transformers has, beside the bare model.
        features: traits that must act.
        hidden_size: by default. Where norms stand before the layers, random weights need width: at
            32, rounding to bfloat16 moves single token vectors by more than engines may.
        num_layers: by default.
        max_positions: by default.
        norm_center: about which norm weights spread; 0 where the model adds one to them.
        pooling: of embedding checkpoints.
        published: how the checkpoint on disk differs from transformers' own.
    """

    name: str
    model_type: str
    tokenizer: str
    embedding_tokenizer: str | None = None
    config: Values = field(default_factory=dict)
    heads: tuple[str, ...] = ENCODER_HEADS
    features: tuple[Feature, ...] = ()
    hidden_size: int = 32
    num_layers: int = 2
    max_positions: int = 512
    norm_center: float = 1.0
    pooling: str = "mean"
    published: Published = field(default_factory=Published)


def theta(value: float) -> Values:
    """Rotary positions of this base."""
    return {"rope_parameters": {"rope_type": "default", "rope_theta": value}}


def two_thetas(local: float, everywhere: float) -> Values:
    """Rotary bases of layers with a window, and of layers without."""
    return {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
            "full_attention": {"rope_type": "default", "rope_theta": everywhere},
        }
    }
