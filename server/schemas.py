"""Bodies of requests and replies. Types only: what values mean is decided in the routes.

A field that may be absent but not null says so by a type without None.
"""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

TokenId = int
Direction = Literal["Left", "left", "Right", "right"]
EncodingFormat = Literal["float", "base64", "tensor"]


class TextPart(Struct, tag_field="type", tag="text", forbid_unknown_fields=True):
    """A piece of text in a message."""

    text: str


class ImageLink(Struct, forbid_unknown_fields=True):
    """Where an image is."""

    url: str
    detail: Literal["auto"] = "auto"


class ImagePart(Struct, tag_field="type", tag="image_url", forbid_unknown_fields=True):
    """An image in a message."""

    image_url: ImageLink


class Message(Struct, forbid_unknown_fields=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str | list[TextPart | ImagePart]


Element = str | int | Message | list[int | Message]
"""A text, an id, a message, an array of ids or a conversation."""

Input = Annotated[
    str | list[Element],
    Meta(
        description="A text, an array of token ids, or a list of texts and arrays "
        "of token ids. An array of integers is one item."
    ),
]


class RoutedBody(Struct, kw_only=True):
    """Fields of every inference request."""

    model: str | None = None
    service_tier: Literal["priority", "auto", "default", "flex"] | None = None
    user: str | None = None


class TextBody(RoutedBody, kw_only=True):
    """Fields of every request about texts."""

    truncate: Annotated[
        bool | None, Meta(description="Cut inputs that are too long; null = the server's default.")
    ] = None
    truncation_direction: Direction = "Right"
    prompt_name: str | None = None


class EmbedBody(TextBody, kw_only=True):
    """Body of /embed."""

    inputs: Input
    normalize: bool = True
    dimensions: int | None = None
    encoding_format: EncodingFormat | None = None


class EmbedAllBody(TextBody, kw_only=True):
    """Body of /embed_all."""

    inputs: Input
    encoding_format: Literal["float", "tensor"] | None = None


class EmbeddingsBody(TextBody, kw_only=True):
    """Body of /v1/embeddings. Exactly one of `input` and `messages`."""

    input: Input | msgspec.UnsetType = msgspec.UNSET
    messages: list[Message] | msgspec.UnsetType = msgspec.UNSET
    encoding_format: EncodingFormat | None = None
    dimensions: int | None = None
    truncate_prompt_tokens: int | None = None
    modality: Literal["text"] | None = None


class TokenizeBody(RoutedBody, kw_only=True):
    """Body of /tokenize."""

    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(RoutedBody, kw_only=True):
    """Body of /decode."""

    ids: list[int | list[int]]
    skip_special_tokens: bool = True


class TensorData(Struct, kw_only=True):
    """A little-endian float32 array in C order; `data` is base64 in JSON, bin in MessagePack."""

    dtype: Literal["float32"]
    shape: list[int]
    data: str


class EmbeddingEntry(Struct, kw_only=True):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str | TensorData


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


class PoolingInfo(Struct, kw_only=True):
    """How token vectors become one vector."""

    pooling: str


class EmbeddingType(Struct, kw_only=True):
    """Type of an embedding model."""

    embedding: PoolingInfo


class ArtifactInfo(Struct, kw_only=True):
    """The artifact a model was loaded from."""

    id: str
    name: str
    target: str
    format_version: int


class InfoReply(Struct, kw_only=True):
    """Reply of /info."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    served_model_name: str
    model_type: EmbeddingType
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


class ModelList(Struct, kw_only=True):
    """Reply of /v1/models."""

    object: Literal["list"]
    models: list[ModelEntry]
    data: list[ModelEntry]


class ReadyReply(Struct, kw_only=True):
    """Reply of /ready."""

    status: str
    models: dict[str, str]


class TeiError(Struct, kw_only=True):
    """Error body of the TEI routes."""

    error: str
    error_type: str


class OpenAIErrorDetail(Struct, kw_only=True):
    """What OpenAI clients read."""

    message: str
    type: str
    param: str | None
    code: str | None


class OpenAIError(Struct, kw_only=True):
    """Error body of the OpenAI routes."""

    error: OpenAIErrorDetail
    message: str
    type: str
    code: int
