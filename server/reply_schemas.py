"""Bodies of replies, for the API document; the routes build the same shapes by hand.

Knows nothing of requests.
"""

from typing import Any, Literal

import msgspec
from msgspec import Struct


class TensorData(Struct, kw_only=True):
    """A little-endian float32 array in C order; `data` is base64 in JSON, bin in MessagePack."""

    dtype: Literal["float32"]
    shape: list[int]
    data: str


class EmbeddingEntry(Struct, kw_only=True):
    """One vector, or a matrix of late interaction; `shape` stands beside a matrix in base64."""

    object: Literal["embedding"]
    index: int
    embedding: list[float | list[float]] | str | TensorData
    shape: list[int] | msgspec.UnsetType = msgspec.UNSET


class Usage(Struct, kw_only=True):
    """Tokens fed to the model, prompt and special tokens included."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsReply(Struct, kw_only=True):
    """Reply of /v1/embeddings."""

    object: Literal["list"]
    id: str
    created: int
    model: str
    data: list[EmbeddingEntry]
    usage: Usage


class TokenReply(Struct, kw_only=True):
    """One token; `start` and `stop` count characters of prompt + text, null for special tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class SparseEntry(Struct, kw_only=True):
    """A component that is not zero; `index` is an id of the vocabulary."""

    index: int
    value: float


class LabelScore(Struct, kw_only=True):
    """Score of one label."""

    score: float
    label: str


class ClassEntry(Struct, kw_only=True):
    """Scores of one item; `probs` by class id, `label` the first maximum."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyUsage(Usage, kw_only=True):
    """Tokens fed to the model; nothing is generated."""

    completion_tokens: Literal[0]
    prompt_tokens_details: None


class ClassifyReply(Struct, kw_only=True):
    """Reply of /v1/classify."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[ClassEntry]
    usage: ClassifyUsage


class RankEntry(Struct, kw_only=True):
    """Relevance of one text, best first."""

    index: int
    score: float
    text: str | msgspec.UnsetType = msgspec.UNSET


class RankedDocument(Struct, kw_only=True):
    """A document as it was sent."""

    text: str


class RelevanceEntry(Struct, kw_only=True):
    """Relevance of one document, best first."""

    index: int
    relevance_score: float
    document: RankedDocument | msgspec.UnsetType = msgspec.UNSET


class ApiVersion(Struct, kw_only=True):
    """Version of the rerank dialect."""

    version: Literal["1", "2"]


class RerankMeta(Struct, kw_only=True):
    """What Cohere clients read."""

    api_version: ApiVersion


class RerankReply(Struct, kw_only=True):
    """Reply to `documents`."""

    object: Literal["rerank"]
    id: str
    created: int
    model: str
    results: list[RelevanceEntry]
    usage: Usage
    meta: RerankMeta


class EntityReply(Struct, kw_only=True):
    """A token, or a group of tokens with `token_id` 0; `start` and `end` count characters."""

    token: str
    token_id: int
    start: int
    end: int
    results: dict[str, float]


class PoolingInfo(Struct, kw_only=True):
    """How token vectors become one vector."""

    pooling: str


class LabelInfo(Struct, kw_only=True):
    """Names of the labels by class id, and back."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class DecisionInfo(Struct, kw_only=True):
    """How a decision model is asked."""

    protocol: str


class ModelType(Struct, kw_only=True):
    """What a model does; exactly one of the fields."""

    embedding: PoolingInfo | msgspec.UnsetType = msgspec.UNSET
    classifier: LabelInfo | msgspec.UnsetType = msgspec.UNSET
    reranker: LabelInfo | msgspec.UnsetType = msgspec.UNSET
    token_classifier: LabelInfo | msgspec.UnsetType = msgspec.UNSET
    decision: DecisionInfo | msgspec.UnsetType = msgspec.UNSET


class ArtifactInfo(Struct, kw_only=True):
    """The artifact a model was loaded from."""

    id: str
    name: str
    target: str
    format_version: int


class NextInfo(Struct, kw_only=True):
    """What a watched channel points to while something else is served."""

    id: str
    version: str | None
    event: int | None
    state: Literal["loading", "failed"]
    reason: str | None


class RegistryInfo(Struct, kw_only=True):
    """The reference that a model was pulled by, and what it led to."""

    reference: str
    version: str | None
    channel: str | None
    event: int | None
    watched: bool
    error: str | None
    next: NextInfo | None


class InfoReply(Struct, kw_only=True):
    """Reply of /info."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: ModelType
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    max_queue_tokens: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None
    prompts: list[str]
    artifact: ArtifactInfo
    registry: RegistryInfo | None


class ModelStats(Struct, kw_only=True):
    """What a model is busy with."""

    queue_fraction: float
    queue_absolute: int
    results_pending: int
    batch_size: int


class ModelArtifact(Struct, kw_only=True):
    """Artifact and target of a listed model."""

    id: str
    target: str


class ModelEntry(Struct, kw_only=True):
    """One served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    backend: str
    capabilities: list[str]
    stats: ModelStats
    max_model_len: int
    artifact: ModelArtifact


class DecisionModel(Struct, kw_only=True):
    """A decision model as its clients list it."""

    name: str
    description: str
    release_date: str


class ModelList(Struct, kw_only=True):
    """Reply of /v1/models."""

    object: Literal["list"]
    models: list[DecisionModel]
    data: list[ModelEntry]


class NoulAnswer(Struct, kw_only=True, tag_field="type", tag="noul"):
    """How likely a statement holds."""

    noul: float
    x_native_confidence: float | msgspec.UnsetType = msgspec.UNSET
    x_truncated: bool | msgspec.UnsetType = msgspec.UNSET


class ChoiceAnswer(Struct, kw_only=True, tag_field="type", tag="choice"):
    """The likeliest option, and how likely each is."""

    choice: str
    probabilities: dict[str, float]
    confidence: float
    x_native_confidence: float | msgspec.UnsetType = msgspec.UNSET
    x_truncated: bool | msgspec.UnsetType = msgspec.UNSET


class ScoreAnswer(Struct, kw_only=True, tag_field="type", tag="score"):
    """The expected level; `legend` holds the levels as they were sent."""

    score: float
    legend: dict[str, Any]
    probabilities: dict[str, float]
    confidence: float
    x_native_confidence: float | msgspec.UnsetType = msgspec.UNSET
    x_truncated: bool | msgspec.UnsetType = msgspec.UNSET


class DecisionUsage(Struct, kw_only=True):
    """Tokens of all sequences."""

    input_tokens: int
    output_tokens: int


class DecideReply(Struct, kw_only=True):
    """Reply of /v1/systemone; answers by question id, in request order."""

    model: str
    answers: dict[str, NoulAnswer | ChoiceAnswer | ScoreAnswer]
    usage: DecisionUsage


class ReadyReply(Struct, kw_only=True):
    """Reply of /ready."""

    status: Literal["ready"]
    models: dict[str, str]


class NotReadyReply(Struct, kw_only=True):
    """503 of /ready: what the server and each model are doing."""

    error: Literal["unhealthy"]
    error_type: Literal["Unhealthy"]
    status: str
    models: dict[str, str]


class ScoreEntry(Struct, kw_only=True):
    """Score of one pair."""

    index: int
    object: Literal["score"]
    score: float


class ScoreReply(Struct, kw_only=True):
    """Reply of /v1/score, in the order of the pairs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[ScoreEntry]
    usage: Usage


class VertexReply(Struct, kw_only=True):
    """Reply of /vertex: per instance what its own path would answer."""

    predictions: list[Any]
