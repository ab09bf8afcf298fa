"""What is special about a model family. Data only: no torch, no transformers, no I/O."""

from dataclasses import dataclass
from enum import Enum

from infinity_v3.artifacts.manifest import PoolingMode


class ClassifierPooling(str, Enum):
    """What the classification head of a family reads.

    Attributes:
        CLS: the vector of the first token.
        LAST_TOKEN: the vector of the last token.
        MEAN: the mean of all token vectors.
        LATE: every token vector; their logits are averaged.
        CONFIGURED: as `classifier_pooling` in config.json says.
    """

    CLS = "cls"
    LAST_TOKEN = "last-token"
    MEAN = "mean"
    LATE = "late"
    CONFIGURED = "configured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """One model family on the generic packed route.

    Attributes:
        family: our name, e.g. "bert".
        model_types: values of config.json `model_type` that resolve here.
        architectures: class names accepted in config.json `architectures`, by prefix, e.g. "Bert".
        has_token_types: the encoder takes token type ids; they enter the graph where its table has
            more than one row.
        positions_start_after_padding: position ids start at pad_token_id + 1 (RoBERTa and its
            relatives).
        is_causal: attention sees only the past, unless config.json says otherwise.
        reads_direction: its class in transformers reads `use_bidirectional_attention` itself;
            others have to be told.
        is_generative: trained to continue texts, so that only the user can say what to make of it.
        default_pooling: used when the checkpoint says nothing; None = the user must say.
        classifier_pooling: what the head of `*ForSequenceClassification` reads.
        has_sparse_head: its masked language model can be pooled over the vocabulary.
        default_pad_token_id: what transformers assumes when config.json has no `pad_token_id`.
        is_built_in: the code that the checkpoint's `auto_map` names is not needed: this family is
            implemented without it.
        is_verified: an implementation other than ours was compared with in the tests.
    """

    family: str
    model_types: tuple[str, ...]
    architectures: tuple[str, ...]
    has_token_types: bool = False
    positions_start_after_padding: bool = False
    is_causal: bool = False
    reads_direction: bool = False
    is_generative: bool = False
    default_pooling: PoolingMode | None = None
    classifier_pooling: ClassifierPooling = ClassifierPooling.CLS
    has_sparse_head: bool = True
    default_pad_token_id: int = 0
    is_built_in: bool = False
    is_verified: bool = True
