"""Bodies of requests. Types only: what values mean is decided in the routes.

A field that may be absent but not null says so by a type without None.
"""

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

from infinity_v3.server import input_schemas as shown

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


Messages = Annotated[list[Message], Meta(extra_json_schema={"minItems": 1})]

Element = str | int | Message | list[int | Message]
"""A text, an id, a message, an array of ids or a conversation."""

Input = Annotated[
    str | list[Element],
    Meta(
        description="A text, an array of token ids, a conversation, or a list of those. "
        "An array of integers is one item, and so is an array of messages.",
        extra_json_schema=shown.instead(shown.INPUT),
    ),
]


class Conversation(Struct):
    """A conversation as one item."""

    messages: Messages


class RoleMessage(Struct, forbid_unknown_fields=True):
    """One message of a conversation, or one half of a pair."""

    role: Literal["system", "user", "assistant", "query", "document"]
    content: str | list[TextPart | ImagePart]


PredictElement = str | int | Conversation | list[str | int | Message]
"""A text, an id, a conversation, or an array of one text, two texts, ids or messages."""

PredictInput = Annotated[
    str | Conversation | list[PredictElement],
    Meta(
        description="A text, an array of token ids, a conversation, or a batch: a list of "
        "conversations and of arrays of one text or of two that are read together, or a list of "
        "arrays of ids. An array of two texts is one pair.",
        extra_json_schema=shown.instead(shown.PREDICT_INPUT),
    ),
]

ClassifyInputs = Annotated[
    str | list[str | int | list[int]],
    Meta(
        description="A text, texts, an array of token ids, or several of those.",
        extra_json_schema=shown.instead(shown.CLASSIFY_INPUT),
    ),
]

Texts = Annotated[
    str | list[str],
    Meta(
        description="A text or texts. One on the left goes with each on the right.",
        extra_json_schema=shown.instead(shown.SIDE),
    ),
]

PlainTexts = Annotated[str | list[str], Meta(extra_json_schema=shown.instead(shown.TEXTS))]

TokenIds = Annotated[list[int | list[int]], Meta(extra_json_schema=shown.instead(shown.ID_LISTS))]

Dimensions = Annotated[
    int | None,
    Meta(
        description="Keep the first that many components, then normalise.",
        extra_json_schema=shown.instead(shown.POSITIVE_OR_NULL),
    ),
]

SomeTexts = Annotated[list[str], Meta(extra_json_schema={"minItems": 1})]

Alternatives = tuple[tuple[str, ...], ...]
"""Groups of fields of which a body has exactly one."""

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


class InputsBody(TextBody, kw_only=True):
    """Fields of every request for vectors."""

    inputs: Input


class EmbedBody(InputsBody, kw_only=True):
    """Body of /embed."""

    normalize: bool = True
    dimensions: Dimensions = None
    encoding_format: EncodingFormat | None = None


class EmbedAllBody(InputsBody, kw_only=True):
    """Body of /embed_all."""

    encoding_format: Literal["float", "tensor"] | None = None


class EmbedSparseBody(InputsBody, kw_only=True):
    """Body of /embed_sparse."""


class SimilarityInputs(Struct):
    """What is compared with what."""

    source_sentence: Annotated[str, Meta(extra_json_schema={"minLength": 1})]
    sentences: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"minLength": 1})]],
        Meta(extra_json_schema={"minItems": 1}),
    ]


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
        int | None,
        Meta(
            description="Cut at that many tokens; -1 = at the model's limit.",
            extra_json_schema=shown.instead(shown.CUT),
        ),
    ] = None


class EmbeddingsBody(CutBody, kw_only=True):
    """Body of /v1/embeddings. Exactly one of `input` and `messages`."""

    alternatives: ClassVar[Alternatives] = (("input",), ("messages",))

    input: Input | msgspec.UnsetType = msgspec.UNSET
    messages: Messages | msgspec.UnsetType = msgspec.UNSET
    encoding_format: EncodingFormat | None = None
    dimensions: Dimensions = None
    modality: Literal["text"] | None = None


class PredictBody(TextBody, kw_only=True):
    """Body of /predict."""

    inputs: PredictInput
    raw_scores: bool = False


class ClassifyBody(CutBody, kw_only=True):
    """Body of /v1/classify. Exactly one of `input` and `messages`."""

    alternatives: ClassVar[Alternatives] = (("input",), ("messages",))

    input: ClassifyInputs | msgspec.UnsetType = msgspec.UNSET
    messages: (
        Annotated[list[RoleMessage], Meta(extra_json_schema={"minItems": 1})] | msgspec.UnsetType
    ) = msgspec.UNSET
    rid: str | list[str] | None = None
    priority: Literal[0] = 0
    use_activation: bool = True


class RerankBody(CutBody, kw_only=True):
    """Body of the rerank routes. Exactly one of `texts` (TEI) and `documents` (Jina, Cohere)."""

    alternatives: ClassVar[Alternatives] = (("texts",), ("documents",))

    query: str
    texts: SomeTexts | msgspec.UnsetType = msgspec.UNSET
    documents: (
        Annotated[list[str | Document], Meta(extra_json_schema={"minItems": 1})] | msgspec.UnsetType
    ) = msgspec.UNSET
    raw_scores: bool = False
    return_text: bool = False
    return_documents: bool = False
    top_n: PositiveInt | None = None
    max_tokens_per_doc: PositiveInt | None = None


class ScoreBody(CutBody, kw_only=True):
    """Body of /v1/score: either `text_1` and `text_2`, or `queries` and `documents`."""

    alternatives: ClassVar[Alternatives] = (("text_1", "text_2"), ("queries", "documents"))

    text_1: Texts | msgspec.UnsetType = msgspec.UNSET
    text_2: Texts | msgspec.UnsetType = msgspec.UNSET
    queries: Texts | msgspec.UnsetType = msgspec.UNSET
    documents: Texts | msgspec.UnsetType = msgspec.UNSET


class PredictTokensBody(RoutedBody, kw_only=True):
    """Body of /predict_tokens."""

    prompt_name: ClassVar[None] = None  # offsets are those of the text

    inputs: PlainTexts
    aggregation_strategy: Literal["none", "simple", "first", "average", "max"] = "none"
    ignore_labels: list[str] = msgspec.field(default_factory=lambda: ["O"])
    raw_scores: bool = False
    truncate: bool | None = None
    truncation_direction: Direction = "Right"


_Media = Annotated[
    Any,
    Meta(
        description="Refused: this release reads text only.",
        extra_json_schema=shown.instead({"type": "null"}),
    ),
]


class DecideBody(RoutedBody, kw_only=True):
    """Body of /v1/systemone and /v1/decide; questions are checked against the model."""

    state: Annotated[
        Any, Meta(description="What the questions are about.", extra_json_schema=shown.STATE)
    ]
    questions: Annotated[
        Any, Meta(description="Questions by id.", extra_json_schema=shown.QUESTIONS)
    ]
    max_len: Annotated[
        Any,
        Meta(
            description="Longest sequence in tokens; more than the model's acts as the model's.",
            extra_json_schema=shown.instead(shown.POSITIVE_OR_NULL),
        ),
    ] = None
    head_max_len: Annotated[
        Any,
        Meta(
            description="Tokens of the half that holds the question: 16 to below the longest "
            "sequence.",
            extra_json_schema=shown.instead(shown.POSITIVE_OR_NULL),
        ),
    ] = None
    assets: _Media = None
    images: _Media = None
    media: _Media = None


class VertexBody(RoutedBody, kw_only=True):
    """Body of /vertex: several bodies of the path that the model's kind stands for."""

    instances: Annotated[list[dict[str, Any]], Meta(extra_json_schema={"minItems": 1})]


class TokenizeBody(RoutedBody, kw_only=True):
    """Body of /tokenize."""

    inputs: PlainTexts
    add_special_tokens: bool = True
    prompt_name: str | None = None


class DecodeBody(RoutedBody, kw_only=True):
    """Body of /decode."""

    ids: TokenIds
    skip_special_tokens: bool = True
