"""Bodies of requests. Types only: what values mean is decided in the routes.

A field that may be absent but not null says so by a type without None.
"""

from typing import Annotated, ClassVar, Literal

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


class Conversation(Struct):
    """A conversation as one item."""

    messages: list[Message]


class RoleMessage(Struct, forbid_unknown_fields=True):
    """One message of a conversation, or one half of a pair."""

    role: Literal["system", "user", "assistant", "query", "document"]
    content: str | list[TextPart | ImagePart]


PredictElement = str | int | Conversation | list[str | int | Message]
"""A text, an id, a conversation, or an array of one text, two texts, ids or messages."""

PredictInput = Annotated[
    str | Conversation | list[PredictElement],
    Meta(
        description="A text, an array of token ids, or a batch: a list of arrays of one text, two "
        "texts that are read together, or ids. An array of two texts is one pair."
    ),
]

ClassifyInputs = Annotated[
    str | list[str | int | list[int]],
    Meta(description="A text, texts, an array of token ids, or several of those."),
]

PositiveInt = Annotated[int, Meta(ge=1)]


class Document(Struct):
    """A candidate with its text in a field."""

    text: str


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


class EmbedSparseBody(TextBody, kw_only=True):
    """Body of /embed_sparse."""

    inputs: Input


class SimilarityInputs(Struct):
    """What is compared with what."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(Struct, kw_only=True):
    """Options of /similarity; a prompt goes to both sides."""

    truncate: bool | None = None
    truncation_direction: Direction = "Right"
    prompt_name: str | None = None


class SimilarityBody(RoutedBody, kw_only=True):
    """Body of /similarity."""

    inputs: SimilarityInputs
    parameters: SimilarityParameters | None = None


class CutBody(TextBody, kw_only=True):
    """Fields of requests that may name the length to cut at."""

    truncate_prompt_tokens: Annotated[
        int | None, Meta(description="Cut at that many tokens; -1 = at the model's limit.")
    ] = None


class EmbeddingsBody(CutBody, kw_only=True):
    """Body of /v1/embeddings. Exactly one of `input` and `messages`."""

    input: Input | msgspec.UnsetType = msgspec.UNSET
    messages: list[Message] | msgspec.UnsetType = msgspec.UNSET
    encoding_format: EncodingFormat | None = None
    dimensions: int | None = None
    modality: Literal["text"] | None = None


class PredictBody(TextBody, kw_only=True):
    """Body of /predict."""

    inputs: PredictInput
    raw_scores: bool = False


class ClassifyBody(CutBody, kw_only=True):
    """Body of /v1/classify. Exactly one of `input` and `messages`."""

    input: ClassifyInputs | msgspec.UnsetType = msgspec.UNSET
    messages: list[RoleMessage] | msgspec.UnsetType = msgspec.UNSET
    rid: str | list[str] | None = None
    priority: Literal[0] = 0
    use_activation: bool = True


class RerankBody(CutBody, kw_only=True):
    """Body of the rerank routes. Exactly one of `texts` (TEI) and `documents` (Jina, Cohere)."""

    query: str
    texts: list[str] | msgspec.UnsetType = msgspec.UNSET
    documents: list[str | Document] | msgspec.UnsetType = msgspec.UNSET
    raw_scores: bool = False
    return_text: bool = False
    return_documents: bool = False
    top_n: PositiveInt | None = None
    max_tokens_per_doc: PositiveInt | None = None


class PredictTokensBody(RoutedBody, kw_only=True):
    """Body of /predict_tokens."""

    prompt_name: ClassVar[None] = None  # offsets are those of the text

    inputs: str | list[str]
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] = "none"
    ignore_labels: list[str] = msgspec.field(default_factory=lambda: ["O"])
    raw_scores: bool = False
    truncate: bool | None = None
    truncation_direction: Direction = "Right"


class TokenizeBody(RoutedBody, kw_only=True):
    """Body of /tokenize."""

    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(RoutedBody, kw_only=True):
    """Body of /decode."""

    ids: list[int | list[int]]
    skip_special_tokens: bool = True
