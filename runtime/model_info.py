"""Frozen facts about one loaded model, for the server to publish.

Knows nothing of how they are shown.
"""

from dataclasses import dataclass

from infinity_v3.artifacts.decision import Decision
from infinity_v3.artifacts.manifest import Backend, Device, Kind, PoolingMode, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """What a client may know.

    Attributes:
        max_input_tokens: longest input in tokens, prompt and special tokens included.
        max_batch_tokens: hard ceiling of one engine batch.
        fill_tokens: what batches are filled to.
        max_batch_items: most items that the engine takes in one batch.
        width: components of one output vector; None where the model gives no vectors.
        pooling: modes in use, concatenated in this order; empty where nothing is pooled.
        labels: names of the scores, in the order of class ids; empty where nothing is scored.
        problem_type: as the checkpoint states it, if it does.
        decision: protocol and limits of a decision model.
        capabilities: subset of "embed", "embed_all", "embed_sparse", "similarity", "rerank",
            "score", "classify", "token_classify", "decide", "tokenize".
        has_chat_template: conversations can be read.
        source_revision: commit of the checkpoint, if it had one.
    """

    name: str
    kind: Kind
    artifact_id: str
    format_version: int
    target_name: str
    backend: Backend
    device: Device
    precision: Precision
    vocab_size: int
    max_input_tokens: int
    max_batch_tokens: int
    fill_tokens: int
    max_batch_items: int
    width: int | None
    pooling: tuple[PoolingMode, ...]
    labels: tuple[str, ...] = ()
    problem_type: str | None = None
    decision: Decision | None = None
    prompt_names: tuple[str, ...]
    capabilities: frozenset[str]
    has_chat_template: bool = False
    source_revision: str | None
